package suppresscost

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scene is a node of four CPUs. A service uses one CPU. BE uses its whole quota
// of 1600m, which is 65 % of 4000m minus the use of the service.
type scene struct {
	percent  unit.Percent
	be       unit.MilliCPU // use of BE
	quota    unit.MilliCPU // of its contention root; 0: none
	set      string        // its CPUs; empty: unknown
	limit    unit.MilliCPU // the limit that BE asked for; 0: none
	barred   string        // CPUs that BE may never use, such as CPUs of LSE work
	foreign  bool          // another component set the quota and the CPUs
	backOff  bool
	alone    bool // the quota is the bound of this workload alone
	unknown  bool // the use of a CPU is unknown
	duration time.Duration
}

func (c scene) follow(w Watermark) Watermark {
	const root = "besteffort"
	all := unit.CPUSetOf(0, 1, 2, 3)
	s := node.Snapshot{At: noon.Add(c.duration), Workloads: []node.Workload{
		{ID: "web", Class: node.LS, Cgroup: "web"}, {ID: "job", Class: node.BE, Cgroup: root, ContentionRoot: root},
	}}
	for cpu := range all.All() {
		s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: cpu})
	}
	s.Knobs.Now, s.Knobs.Before = map[node.Knob]node.Value{}, map[node.Knob]node.Value{}
	if c.quota > 0 {
		s.Knobs.Now[node.Knob{Cgroup: root, File: node.FileCPUMax}] = node.Limit(c.quota)
	}
	if c.alone {
		s.Knobs.Now[node.Knob{Cgroup: root, File: node.FileCPUMax}] = culprit.Limit(c.quota)
	}
	if c.set != "" {
		s.Knobs.Now[node.Knob{Cgroup: root, File: node.FileCPUs}] = node.CPUs{Set: setOf(c.set)}
	}
	if !c.foreign {
		s.Knobs.Before[node.Knob{Cgroup: root, File: node.FileCPUMax}] = node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
		s.Knobs.Before[node.Knob{Cgroup: root, File: node.FileCPUs}] = node.CPUs{}
	}
	if c.limit > 0 {
		s.Workloads[1].CPULimit = node.Some(c.limit)
	}
	u := facts.Use{At: s.At, Elapsed: time.Second, Workload: map[node.WorkloadID]unit.MilliCPU{"web": 1000, "job": c.be}, CPU: map[unit.CPU]unit.MilliCPU{}}
	for cpu := range all.All() {
		if !c.unknown || cpu > 0 {
			u.CPU[cpu] = (1000 + c.be) / 4
		}
	}
	return w.Follow(Tick{Percent: c.percent, BackedOff: c.backOff, CPUs: all.Minus(setOf(c.barred)), Layout: facts.LayoutOf(s), Use: u}, s)
}

func setOf(text string) unit.CPUSet {
	if text == "" {
		return unit.CPUSet{}
	}
	set, err := unit.ParseCPUSet(text)
	if err != nil {
		panic(err)
	}
	return set
}

func TestAThresholdCostsWhatStaysIdleWhileBEIsHeldBack(t *testing.T) {
	for name, c := range map[string]struct {
		scene
		reached, withheld, counted time.Duration // after ten seconds
	}{
		"BE uses its whole quota":             {scene{be: 1600, quota: 1600}, 10 * time.Second, 14 * time.Second, 10 * time.Second},
		"a service waits for it alone":        {scene{be: 1600, quota: 1600, alone: true}, 0, 0, 10 * time.Second},
		"nearly":                              {scene{be: 1520, quota: 1600}, 10 * time.Second, 14800 * time.Millisecond, 10 * time.Second},
		"BE uses less than it may":            {scene{be: 1200, quota: 1600}, 0, 0, 10 * time.Second},
		"BE uses all of its CPUs":             {scene{be: 2000, set: "0-1"}, 10 * time.Second, 10 * time.Second, 10 * time.Second},
		"BE has all CPUs":                     {scene{be: 3000, set: "0-3"}, 0, 0, 10 * time.Second},
		"BE has all CPUs that LSE leaves":     {scene{be: 2000, set: "0-1", barred: "2-3"}, 0, 0, 10 * time.Second},
		"and a quota of fewer":                {scene{be: 1000, set: "0-1", quota: 1000, barred: "2-3"}, 10 * time.Second, 10 * time.Second, 10 * time.Second},
		"the owner gave it these CPUs":        {scene{be: 2000, set: "0-1", foreign: true}, 0, 0, 10 * time.Second},
		"the owner gave it this quota":        {scene{be: 1600, quota: 1600, foreign: true}, 0, 0, 10 * time.Second},
		"BE has only barred CPUs":             {scene{be: 1000, set: "3", barred: "2-3"}, 0, 0, 10 * time.Second},
		"BE does not run":                     {scene{quota: 1600}, 0, 0, 0},
		"BE has no quota":                     {scene{be: 1600}, 0, 0, 10 * time.Second},
		"the job asked for no more":           {scene{be: 1000, quota: 1000, limit: 1000}, 0, 0, 10 * time.Second},
		"the job asked for more":              {scene{be: 1600, quota: 1600, limit: 2000}, 10 * time.Second, 14 * time.Second, 10 * time.Second},
		"an objective narrows BE further":     {scene{be: 800, quota: 800, backOff: true}, 0, 0, 10 * time.Second},
		"the use of a CPU is not known":       {scene{be: 1600, quota: 1600, unknown: true}, 0, 0, 0},
		"the node has no CPU that stays idle": {scene{be: 3000, quota: 3000}, 10 * time.Second, 0, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := Watermark{}
			for i := range 10 {
				c.percent, c.duration = 65, time.Duration(i)*time.Second
				w = c.follow(w)
			}
			if w.Reached != c.reached || w.Withheld != c.withheld || w.Counted != c.counted || !w.Since.Equal(noon) || !w.HasThreshold() {
				t.Errorf("%+v, want reached %v, withheld %v, counted %v", w, c.reached, c.withheld, c.counted)
			}
		})
	}
}

func TestAnotherThresholdIsCountedAnew(t *testing.T) {
	held := scene{percent: 65, be: 1600, quota: 1600}
	w := held.follow(held.follow(Watermark{}))
	held.percent, held.duration = 70, time.Minute
	if w = held.follow(w); w.Counted != time.Second || !w.Since.Equal(noon.Add(time.Minute)) {
		t.Errorf("after a change of the threshold: %+v", w)
	}
	held.duration = 0 // the clock was set back
	if w = held.follow(w); w.Counted != time.Second || !w.Since.Equal(noon) {
		t.Errorf("after a step of the clock: %+v", w)
	}
}

func TestThePriceIsSaidWithTheClaimThatDoesNotHold(t *testing.T) {
	w := Watermark{Percent: 65, Since: noon, Counted: time.Hour, Reached: 30 * time.Minute, Withheld: 42 * time.Minute}
	for text, want := range map[string][]string{
		w.String(): {"cpuSuppressThresholdPercent 65: it has withheld up to 700m from BE in the mean of 1h0m0s, 42m0s of CPU time in all",
			"in the 30m0s in which BE used all that it was allowed", "does not claim that services wait no longer than without Tenon"},
		Watermark{Percent: 65, Since: noon, Counted: time.Hour}.String(): {"it has cost BE nothing in 1h0m0s", "does not claim"},
		Watermark{Percent: 65, Since: noon}.String():                     {"BE has not run yet", "does not claim"},
	} {
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("want %q in %q", part, text)
			}
		}
	}
	if (Watermark{}).HasThreshold() {
		t.Error("without a threshold there is a watermark")
	}
}
