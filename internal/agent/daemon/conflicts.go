package daemon

import (
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/writeconflict"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// writeConflicts finds knobs that another component also writes. It compares Tenon's
// last write of each knob with later snapshots. All times come from snapshots.
type writeConflicts struct {
	knobs map[node.Knob]*lastWrite
	at    time.Time // the time of the last snapshot
	swept time.Time
}

// A lastWrite is Tenon's last write to a knob.
type lastWrite struct {
	value node.Value // nil: Tenon has released the knob
	at    time.Time
	// found and resets are the times of snapshots with another value, as in
	// node.WriteConflict. seen is the last of them.
	found, resets []time.Time
	seen          time.Time
}

// isDisputed reports whether another component has lately written the knob.
func (w *lastWrite) isDisputed() bool { return len(w.found)+len(w.resets) > 0 }

// see compares the knobs of a snapshot with Tenon's last writes, and records
// recent conflicts in the snapshot.
func (c *writeConflicts) see(s *node.Snapshot) {
	c.at = s.At
	c.sweep()
	for k, w := range c.knobs {
		now, there := s.Knobs.Now[k]
		// A write in the tick of a finding comes after it, and has the same time.
		if there && w.value != nil && now != w.value && (!w.isDisputed() || !w.at.Before(w.seen)) {
			w.seen = s.At
			if before, ours := s.Knobs.Before[k]; ours && isReset(k, w.value, before, now) {
				w.resets = append(w.resets, s.At)
			} else {
				w.found = append(w.found, s.At)
			}
		}
		old := func(at time.Time) bool { return s.At.Sub(at) > writeconflict.Remembered }
		w.found, w.resets = slices.DeleteFunc(w.found, old), slices.DeleteFunc(w.resets, old)
		if w.isDisputed() {
			s.Conflicts = append(s.Conflicts, node.WriteConflict{Knob: k, Wrote: w.at, Found: slices.Clone(w.found), Resets: slices.Clone(w.resets)})
		}
	}
	slices.SortFunc(s.Conflicts, func(a, b node.WriteConflict) int { return a.Knob.Compare(b.Knob) })
}

// isReset reports whether the change of a knob is one that systemd makes when it writes
// all settings of a unit: each part of the knob that Tenon changed has its value from
// before Tenon. systemd may have left the other parts, such as a burst, as Tenon wrote
// them.
func isReset(k node.Knob, wrote, before, now node.Value) bool {
	return k.Cgroup.IsUnit() && knob.ByPart(k.File, now, []node.Value{wrote}, before, now) == before
}

// note records that Tenon performed a step, and the value that the kernel stored.
func (c *writeConflicts) note(s plan.Step, became node.Value) {
	if w := c.knobs[s.Knob]; s.Release && w != nil && w.isDisputed() {
		w.value = nil // the other component may still write it
		return
	}
	if s.Release || !node.IsKept(became) {
		delete(c.knobs, s.Knob)
		return
	}
	if c.knobs == nil {
		c.knobs = map[node.Knob]*lastWrite{}
	}
	w := c.knobs[s.Knob]
	if w == nil {
		w = &lastWrite{}
		c.knobs[s.Knob] = w
	}
	w.value, w.at = became, c.at
}

// forget drops the knobs of cgroups that came or went, and of the cgroups below
// these. A cgroup that was removed and made again under its name has default
// values, and no other component has written them.
func (c *writeConflicts) forget(came []string) {
	if len(came) == 0 || len(c.knobs) == 0 {
		return
	}
	differ := make(map[node.CgroupPath]bool, len(came))
	for _, path := range came {
		differ[node.CgroupPath(path)] = true
	}
	maps.DeleteFunc(c.knobs, func(k node.Knob, _ *lastWrite) bool {
		p := k.Cgroup
		for p != "" && !differ[p] {
			p = p.Parent()
		}
		return p != ""
	})
}

// sweep forgets knobs that Tenon has not written for a long time.
func (c *writeConflicts) sweep() {
	if c.at.Sub(c.swept) < writeconflict.Remembered {
		return
	}
	c.swept = c.at
	for k, w := range c.knobs {
		if c.at.Sub(w.at) > 6*writeconflict.Remembered {
			delete(c.knobs, k)
		}
	}
}

// trouble returns a text with up to five knobs that another component keeps
// writing. It returns "" if there are none.
func (c *writeConflicts) trouble(s node.Snapshot) string {
	var names []string
	for _, w := range s.Conflicts {
		if writeconflict.Contested(s, w.Knob) && len(names) < 5 {
			names = append(names, w.Knob.String())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "another program keeps writing what Tenon writes, so best-effort work may be without a limit: " + strings.Join(names, ", ")
}

// logContested logs each knob that Tenon does not write any more because
// another component also writes it. It logs each such knob once.
func (r *changeLogger) logContested(wants []plan.Want) {
	held := map[node.Knob]bool{}
	for _, w := range wants {
		if w.Intent != plan.Pause {
			continue
		}
		if held[w.Knob] = true; !r.held[w.Knob] {
			r.log.Warn("a knob is left for a while, because another component writes it too", "cgroup", w.Knob.Object(), "file", w.Knob.File,
				"policy", w.Owner, "reason", w.Reason)
		}
	}
	r.held = held
}
