package cache

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// anyDivided returns a node with random resctrl, work, shares and back-off.
func anyDivided(rnd *rand.Rand) (Config, BackOff, node.Snapshot) {
	s := node.Snapshot{At: time.Unix(1000, 0), Knobs: node.Knobs{Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}}
	caches := []node.CacheID{0, 1, 8, 30}[:1+rnd.IntN(4)]
	s.Resctrl = node.Resctrl{Groups: rnd.IntN(6), Others: rnd.IntN(3)}
	if rnd.IntN(4) > 0 {
		s.Resctrl.L3 = node.CacheWays{Domains: caches, Mask: 1<<(1+rnd.IntN(32)) - 1, Least: rnd.IntN(3), Sparse: rnd.IntN(2) == 0}
	}
	if rnd.IntN(4) > 0 {
		s.Resctrl.MBDomains, s.Resctrl.MBPerCore = caches, rnd.IntN(2) == 0
		s.Knobs.Kernel.MB = []node.Bandwidth{
			{Unit: node.BandwidthPercent, Least: 10, Step: 10, Most: 100}, {Unit: node.BandwidthPercent, Least: 5, Step: 5, Most: 100},
			{Unit: node.BandwidthEighths, Step: 1, Most: 2048}, {Unit: node.BandwidthMegabytes, Step: 1, Most: 1<<32 - 1},
		}[rnd.IntN(4)]
	}
	s.Topology.CPUs = []node.LogicalCPU{{ID: 0, Core: 0}, {ID: 1, Core: node.CoreID(rnd.IntN(2))}}
	c := Config{Classes: map[node.Class]Share{}}
	if rnd.IntN(2) == 0 {
		c.Peak = unit.Bytes(rnd.Int64N(1e12))
	}
	for _, class := range []node.Class{node.LSE, node.LSR, node.LS, node.BE} {
		if rnd.IntN(3) == 0 {
			continue
		}
		start := unit.Percent(rnd.IntN(100))
		c.Classes[class] = Share{Start: start, End: start + 1 + unit.Percent(rnd.IntN(100-int(start))), Bandwidth: 1 + unit.Percent(rnd.IntN(100))}
		if rnd.IntN(2) == 0 {
			c.Classes[class] = Share{End: 100, Bandwidth: 100}
		}
	}
	if lsr, is := c.Classes[node.LSR]; is {
		c.Classes[node.LSE] = lsr
	} else {
		delete(c.Classes, node.LSE)
	}
	for _, name := range node.ControlGroups {
		if rnd.IntN(6) == 0 && s.Resctrl.Others > len(s.Resctrl.Taken) {
			s.Resctrl.Taken = append(s.Resctrl.Taken, name)
		}
	}
	groups := []string{"/", "BE", "LS", "LSR", "virt"}
	for i := range rnd.IntN(8) {
		w := node.Workload{ID: node.WorkloadID(fmt.Sprint("w", i)), Class: node.Classes[rnd.IntN(len(node.Classes))], Cgroup: node.CgroupPath(fmt.Sprint("g", i))}
		s.Workloads = append(s.Workloads, w)
		if rnd.IntN(5) > 0 {
			s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileControlGroup}] = node.ControlGroupsOf(groups[rnd.IntN(5)], groups[rnd.IntN(5)])
		}
	}
	return c, BackOff{Cut: rnd.IntN(parts + 1)}, s
}

// TestDivisionsKeepTheirShares checks random machines and shares. There must
// not be more groups than the hardware has, and groups of other programs must
// not change. BE must get at most its share, but never nothing. Other classes
// must get at least their share. No work may be in the group of another class.
// BE must have no limit of bandwidth that would also hold for LS work.
func TestDivisionsKeepTheirShares(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 8))
	sets := 0
	for range 20000 {
		c, q, s := anyDivided(rnd)
		groups := map[string]bool{}
		knobs := map[node.Knob]bool{}
		classes := map[node.CgroupPath]node.Class{}
		for _, w := range s.Workloads {
			classes[w.Cgroup] = w.Class
		}
		besideLS := rnd.IntN(2) == 0
		wants := Decide(c, q, besideLS, s)
		for _, w := range wants {
			if knobs[w.Knob] || w.Reason == "" || w.Owner != plan.OwnerCache {
				t.Fatalf("%+v: want each knob once, with an owner and a reason", w)
			}
			knobs[w.Knob] = true
			if w.Intent != plan.Set {
				continue
			}
			sets++
			if w.Knob.File == node.FileControlGroup {
				now := s.Knobs.Now[w.Knob].(node.ControlGroup)
				to := w.Value.(node.ControlGroup).Groups
				if to != node.DefaultControlGroup && to != classes[w.Knob.Cgroup].Control() || slices.Contains(now.List(), "virt") || slices.Contains(s.Resctrl.Taken, to) {
					t.Fatalf("%v of %s: %v -> %v", w.Knob, classes[w.Knob.Cgroup], now, to)
				}
				continue
			}
			groups[w.Knob.ControlGroup] = true
			if slices.Contains(s.Resctrl.Taken, w.Knob.ControlGroup) {
				t.Fatalf("%v belongs to another program", w.Knob)
			}
			share := c.Classes[node.Class(w.Knob.ControlGroup)]
			if besideLS && s.Resctrl.MBPerCore && s.Topology.SMT() && w.BE {
				share.Bandwidth = 100
				if all := (divider{snap: s}).everywhere(s.Knobs.Kernel.MB.Most); w.Knob.File == node.FileMB && w.Value != node.Value(all) {
					t.Fatalf("%+v also limits LS work on siblings", w)
				}
			}
			checkShare(t, share, q, s, w)
		}
		if most := max(s.Resctrl.Groups-1-s.Resctrl.Others, 0); len(groups) > most {
			t.Fatalf("%d groups of %d with %d others: %v", len(groups), s.Resctrl.Groups, s.Resctrl.Others, groups)
		}
	}
	if sets < 20000 {
		t.Errorf("only %d values were set", sets)
	}
}

func checkShare(t *testing.T, share Share, q BackOff, s node.Snapshot, w plan.Want) {
	t.Helper()
	be := w.Knob.ControlGroup == "BE"
	if w.BE != be {
		t.Fatalf("%+v: BE is %v", w, be)
	}
	if v, is := w.Value.(node.L3); is {
		by, _, err := v.Parts()
		all := bits.OnesCount64(s.Resctrl.L3.Mask)
		asked := all * int(share.End-share.Start) // in hundredths
		for _, mask := range by {
			n := bits.OnesCount64(mask)
			switch {
			case err != nil || n == 0 || mask&^s.Resctrl.L3.Mask != 0:
				t.Fatalf("%+v: %v", w, err)
			case be && 100*n > asked && n > max(s.Resctrl.L3.Least, 1):
				t.Fatalf("%+v: BE gets %d of %d ways, want %d%%", w, n, all, share.End-share.Start)
			case !be && 100*n < asked:
				t.Fatalf("%+v: %s gets %d of %d ways, want %d%%", w, w.Knob.ControlGroup, n, all, share.End-share.Start)
			}
		}
		return
	}
	by, err := w.Value.(node.MB).Bandwidths()
	rule := s.Knobs.Kernel.MB
	for _, n := range by {
		switch {
		case err != nil || n == 0 || w.Value.Round(s.Knobs.Kernel) != w.Value:
			t.Fatalf("%+v is not valid on this machine: %v", w, err)
		case share.Bandwidth >= 100 && q.Cut == 0 && n != rule.Most, !be && share.Bandwidth >= 100 && n != rule.Most:
			t.Fatalf("%+v: %s is limited without a request", w, w.Knob.ControlGroup)
		case rule.Unit == node.BandwidthPercent && be && n > max(uint64(share.Bandwidth), rule.Least),
			rule.Unit == node.BandwidthPercent && !be && n < uint64(share.Bandwidth):
			t.Fatalf("%+v: want %d%%", w, share.Bandwidth)
		}
	}
}

func TestShareOfAnAmount(t *testing.T) {
	eighths := node.Bandwidth{Unit: node.BandwidthEighths, Step: 1, Most: 2048}
	megabytes := node.Bandwidth{Unit: node.BandwidthMegabytes, Step: 1, Most: 1<<32 - 1}
	for name, c := range map[string]struct {
		rule  node.Bandwidth
		peak  unit.Bytes
		share unit.Percent
		small bool
		want  uint64
		known bool
	}{
		"everything is no limit":   {eighths, 0, 100, true, 2048, true},
		"a tenth of 200 GB/s":      {eighths, 200e9, 10, true, 160, true},
		"rounded down for BE":      {eighths, 1e9, 33, true, 2, true},
		"rounded up for LS":        {eighths, 1e9, 33, false, 3, true},
		"never nothing":            {eighths, 1e9, 1, true, 1, true},
		"the bandwidth is unknown": {eighths, 0, 50, true, 0, false},
		"MB/s":                     {megabytes, 100 << 20, 50, true, 50, true},
		"percent":                  {node.Bandwidth{Unit: node.BandwidthPercent, Least: 10, Step: 10, Most: 100}, 0, 25, true, 20, true},
		"percent for LS":           {node.Bandwidth{Unit: node.BandwidthPercent, Least: 10, Step: 10, Most: 100}, 0, 25, false, 30, true},
		"the least":                {node.Bandwidth{Unit: node.BandwidthPercent, Least: 10, Step: 10, Most: 100}, 0, 1, true, 10, true},
		"the least is MB/s":        {megabytes, 1000, 1, true, 1, true},
	} {
		n, known := divider{Config: Config{Peak: c.peak}}.amount(c.rule, c.share, c.small)
		if n != c.want || known != c.known {
			t.Errorf("%s: %d, %v; want %d, %v", name, n, known, c.want, c.known)
		}
	}
}

func BenchmarkCacheOfAThousandWorkloads(b *testing.B) {
	c := Config{Classes: map[node.Class]Share{node.BE: {End: 30, Bandwidth: 20}, node.LS: {End: 100, Bandwidth: 100}}}
	s := node.Snapshot{Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
	s.Resctrl = node.Resctrl{Groups: 8, L3: node.CacheWays{Domains: []node.CacheID{0, 1}, Mask: 0x7ff, Least: 1}}
	for i := range 1000 {
		w := node.Workload{ID: node.WorkloadID(fmt.Sprint("w", i)), Class: []node.Class{node.LS, node.BE}[i%2], Cgroup: node.CgroupPath(fmt.Sprint("g", i))}
		s.Workloads = append(s.Workloads, w)
		s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileControlGroup}] = node.ControlGroupsOf(w.Class.Control())
	}
	b.ReportAllocs()
	for b.Loop() {
		Decide(c, BackOff{}, true, s)
	}
}

// TestTheReasonSaysWhatIsCut checks that the reason names the cut, even if the
// share is the whole cache.
func TestTheReasonSaysWhatIsCut(t *testing.T) {
	s := node.Snapshot{Workloads: []node.Workload{{ID: "be", Class: node.BE, Cgroup: "be"}}}
	s.Resctrl = node.Resctrl{Groups: 4, L3: node.CacheWays{Mask: 0xff, Least: 1}}
	s.Resctrl.L3.Domains = []node.CacheID{0}
	c := Config{Classes: map[node.Class]Share{node.BE: {End: 100, Bandwidth: 100}}}
	for _, w := range Decide(c, BackOff{Cut: 4, Miss: slo.Miss{Workload: "web", At: time.Unix(1, 0)}}, true, s) {
		if w.Knob.File == node.FileL3 && !strings.Contains(w.Reason, ": BE gives way, down to 4 of them") {
			t.Errorf("%v for %q", w.Value, w.Reason)
		}
	}
}

// TestSlowRequestsCostCacheIfTheyNeedMoreWork misses the objective of a service for its
// requests, for each cause.
func TestSlowRequestsCostCacheIfTheyNeedMoreWork(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, cause := range slo.Causes {
		miss := slo.Miss{Workload: "web", At: at, Percentile: "p99", Helpless: cause != slo.ForBE}
		if cause == slo.OwnLimit {
			miss.Quota = slo.Explains
		}
		x := slo.Tracker{Requests: map[node.WorkloadID]slo.RequestState{"web": {Miss: miss, Judgement: slo.Judgement{Verdict: slo.Missed, Cause: cause}}}}
		q := BackOff{}.Follow(x, node.Snapshot{At: at})
		if gives := cause == slo.ForBE || cause == slo.Contention; (q.Cut > 0) != gives {
			t.Errorf("%s: %+v, want that BE gives way: %v", cause, q, gives)
		}
	}
}

// TestAClockThatWasSetBackStopsNoBackOff restores a cache back-off whose time
// is in the future. It must continue as if it had been saved now.
func TestAClockThatWasSetBackStopsNoBackOff(t *testing.T) {
	now, future := time.Unix(1000, 0), time.Unix(1e6, 0)
	x := slo.Tracker{Work: map[node.WorkloadID]slo.State{"web": {Miss: slo.Miss{Workload: "web", At: now.Add(2 * settling)}}}}
	q := BackOff{Cut: parts / 2, At: future}.Follow(slo.Tracker{}, node.Snapshot{At: now})
	if q = q.Follow(x, node.Snapshot{At: now.Add(2 * settling)}); q.Cut != parts*3/4 {
		t.Errorf("a miss after the clock was set back leaves the cut at %d", q.Cut)
	}
}
