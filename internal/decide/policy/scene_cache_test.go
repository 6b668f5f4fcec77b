package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// readCache applies a scenario line about resctrl:
//
//	resctrl [groups=8] [others=1] [taken=LS,BE] [caches=0,2] [ways=11] [least=2] [mb=percent|amount] [per-core] [missing]
//	share BE [l3=0-30] [mb=20%]
//	peak 200G                        memory bandwidth behind one cache
//	tasks ID GROUPS                  the control groups of its tasks; -: the knob is missing
func (n *scene) readCache(t *testing.T, verb string, f []string) {
	t.Helper()
	switch verb {
	case "resctrl":
		n.snap.Resctrl, n.snap.Knobs.Kernel.MB = readResctrl(t, f)
		for _, w := range n.snap.Workloads {
			n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileControlGroup}] = node.ControlGroupsOf(node.DefaultControlGroup)
		}
	case "peak":
		n.config.Cache.Peak = mustParse(t, word{"peak", f[0]}, unit.ParseBytes)
	case "share":
		share := cache.Share{End: 100, Bandwidth: 100}
		for _, w := range words(strings.Join(f[1:], " ")) {
			switch start, end, _ := strings.Cut(w.val, "-"); w.key {
			case "l3":
				share.Start, share.End = mustParse(t, word{"l3", start}, percent), mustParse(t, word{"l3", end}, percent)
			case "mb":
				share.Bandwidth = mustParse(t, w, percent)
			}
		}
		if n.config.Cache.Classes == nil {
			n.config.Cache.Classes = map[node.Class]cache.Share{}
		}
		n.config.Cache.Classes[node.Class(f[0])] = share
	case "tasks":
		i := slices.IndexFunc(n.snap.Workloads, func(w node.Workload) bool { return string(w.ID) == f[0] })
		knob := node.Knob{Cgroup: n.snap.Workloads[i].Cgroup, File: node.FileControlGroup}
		if f[1] == "-" {
			delete(n.snap.Knobs.Now, knob)
			return
		}
		n.snap.Knobs.Now[knob] = node.ControlGroupsOf(strings.Split(f[1], ",")...)
	}
}

func readResctrl(t *testing.T, f []string) (node.Resctrl, node.Bandwidth) {
	t.Helper()
	r, mb := node.Resctrl{Groups: 8}, node.Bandwidth{}
	caches := []node.CacheID{0}
	for _, w := range words(strings.Join(f, " ")) {
		switch w.key {
		case "groups":
			r.Groups = mustParse(t, w, number)
		case "others":
			r.Others = mustParse(t, w, number)
		case "taken":
			r.Taken = strings.Split(w.val, ",")
		case "per-core":
			r.MBPerCore = true
		case "missing":
			r = node.Resctrl{Missing: "resctrl is not mounted"}
		case "ways":
			r.L3.Mask, r.L3.Least = 1<<mustParse(t, w, number)-1, max(r.L3.Least, 1)
		case "least":
			r.L3.Least = mustParse(t, w, number)
		case "caches":
			caches = nil
			for id := range strings.SplitSeq(w.val, ",") {
				caches = append(caches, node.CacheID(mustParse(t, word{w.key, id}, number)))
			}
		case "mb":
			mb = map[string]node.Bandwidth{
				"percent": {Unit: node.BandwidthPercent, Least: 10, Step: 10, Most: 100},
				"amount":  {Unit: node.BandwidthEighths, Step: 1, Most: 2048},
			}[w.val]
		default:
			t.Fatalf("scenario word %q: unknown", w.key)
		}
	}
	if r.L3.Mask != 0 {
		r.L3.Domains = caches
	}
	if mb.Unit != "" {
		r.MBDomains = caches
	}
	return r, mb
}

// applyDivision makes the changes that the host makes with a step on resctrl: it
// creates the control group, or removes it with its last knob. In the state
// before Tenon's first write, no task is in a group of Tenon.
func (n *scene) applyDivision(s plan.Step) {
	now, before := n.snap.Knobs.Now, n.snap.Knobs.Before
	if s.Knob.ControlGroup == "" {
		if was, is := before[s.Knob].(node.ControlGroup); is && node.IsControlGroup(was.Groups) {
			before[s.Knob] = node.ControlGroupsOf(node.DefaultControlGroup)
		}
		return
	}
	if !s.Release {
		for _, f := range []node.File{node.FileL3, node.FileMB} {
			k := node.Knob{ControlGroup: s.Knob.ControlGroup, File: f}
			if v := n.newGroupValue(f); now[k] == nil && v != nil {
				now[k] = v
			}
		}
		if before[s.Knob] == nil {
			before[s.Knob] = n.newGroupValue(s.Knob.File)
		}
		return
	}
	for k := range before {
		if k != s.Knob && k.ControlGroup == s.Knob.ControlGroup {
			return
		}
	}
	maps.DeleteFunc(now, func(k node.Knob, _ node.Value) bool { return k.ControlGroup == s.Knob.ControlGroup })
}

// newGroupValue returns the value of a new control group.
func (n *scene) newGroupValue(f node.File) node.Value {
	r := n.snap.Resctrl
	by := map[node.CacheID]uint64{}
	switch {
	case f == node.FileL3 && len(r.L3.Domains) > 0:
		for _, id := range r.L3.Domains {
			by[id] = r.L3.Mask
		}
		return node.L3Of(by)
	case f == node.FileMB && len(r.MBDomains) > 0:
		for _, id := range r.MBDomains {
			by[id] = n.snap.Knobs.Kernel.MB.Most
		}
		return node.MBOf(by)
	}
	return nil
}
