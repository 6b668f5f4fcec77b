package lease

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func knob(p node.CgroupPath, f node.File) node.Knob { return node.Knob{Cgroup: p, File: f} }

func kernel(version int) node.Kernel { return node.Kernel{CgroupVersion: version, PageSize: 4096} }

func cpus(list string) node.CPUs {
	set, err := unit.ParseCPUSet(list)
	if err != nil {
		panic(err)
	}
	return node.CPUs{Set: set}
}

func TestNarrowWritesOnlyWhatExceedsItsBound(t *testing.T) {
	half := node.Limit(500)
	for name, c := range map[string]struct {
		version    int
		file       node.File
		has, bound node.Value
		want       string // the step; "" for none
	}{
		"no quota yet":             {2, node.FileCPUMax, node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}, half, "be cpu.max max 100000 -> 50000 100000"},
		"more":                     {2, node.FileCPUMax, node.Limit(1500), half, "be cpu.max 150000 100000 -> 50000 100000"},
		"as much":                  {2, node.FileCPUMax, node.CPUMax{Quota: 35 * time.Millisecond, Period: 70 * time.Millisecond}, half, ""},
		"less":                     {2, node.FileCPUMax, node.Limit(100), half, ""},
		"less, and the bound max":  {2, node.FileCPUMax, node.Limit(100), node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}, ""},
		"a burst is not given":     {2, node.FileCPUMax, node.Limit(1000), node.CPUMax{Quota: half.Quota, Period: half.Period, Burst: 9000}, "be cpu.max 100000 100000 -> 50000 100000"},
		"idle":                     {2, node.FileCPUWeight, node.CPUWeight{Weight: unit.WeightOf(100)}, node.CPUWeight{Idle: true}, "be cpu.weight 100 -> idle"},
		"idle already":             {2, node.FileCPUWeight, node.CPUWeight{Idle: true}, node.CPUWeight{Weight: unit.WeightOf(1)}, ""},
		"the least shares of v1":   {1, node.FileCPUWeight, node.CPUWeight{Weight: unit.WeightOf(100)}, node.CPUWeight{Weight: unit.WeightOfShares(2)}, "be cpu.weight 100 -> 0.1953125"},
		"and they stay":            {1, node.FileCPUWeight, node.CPUWeight{Weight: unit.WeightOfShares(2)}, node.CPUWeight{Weight: unit.WeightOfShares(2)}, ""},
		"fewer CPUs":               {2, node.FileCPUs, cpus("0-3"), cpus("0-1"), "be cpuset.cpus 0-3 -> 0-1"},
		"only the common CPUs":     {2, node.FileCPUs, cpus("1-3"), cpus("0-1"), "be cpuset.cpus 1-3 -> 1"},
		"no common CPU":            {2, node.FileCPUs, cpus("2-3"), cpus("0-1"), ""},
		"all of the parent's CPUs": {2, node.FileCPUs, cpus(""), cpus("0-1"), `be cpuset.cpus "" -> 0-1`},
		"no CPU at all on v1":      {1, node.FileCPUs, cpus(""), cpus("0-1"), ""},
		"an empty bound":           {2, node.FileCPUs, cpus("0"), cpus(""), ""},
		"less memory": {2, node.FileMemory, node.NoMemoryLimit, node.Memory{Low: 8192, High: unit.MaxBytes, Max: 1 << 20},
			"be memory min 0 low 0 high max max max -> min 0 low 0 high max max 1048576"},
		"less memory in one part only": {2, node.FileMemory, node.Memory{High: 4096, Max: unit.MaxBytes}, node.Memory{High: unit.MaxBytes, Max: 1 << 20},
			"be memory min 0 low 0 high 4096 max max -> min 0 low 0 high 4096 max 1048576"},
		"fewer tasks":           {2, node.FilePIDs, node.Maximum{Max: node.NoMaximum}, node.Maximum{Max: 10}, "be pids.max max -> 10"},
		"a value of other kind": {2, node.FilePIDs, node.Maximum{Max: 10}, half, ""},
		"unknown":               {2, node.FileCPUMax, nil, half, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := knob("be", c.file)
			now := node.Knobs{Kernel: kernel(c.version), Now: map[node.Knob]node.Value{}}
			if c.has != nil {
				now.Now[k] = c.has
			}
			got := ""
			for _, s := range Narrow(now, []Bound{{Knob: k, Value: c.bound}}) {
				got += s.String()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestChildrenAreNarrowedFirst checks the order of the steps on cgroup v1,
// which refuses a quota of a parent below that of a child.
func TestChildrenAreNarrowedFirst(t *testing.T) {
	bounds := []Bound{
		{Knob: knob("be", node.FileCPUMax), Value: node.Limit(500)},
		{Knob: knob("be/job", node.FileCPUMax), Value: node.Limit(400)},
	}
	now := node.Knobs{Kernel: kernel(1), Now: map[node.Knob]node.Value{bounds[0].Knob: node.Limit(2000), bounds[1].Knob: node.Limit(1500)}}
	steps := Narrow(now, bounds)
	if len(steps) != 2 || steps[0].Knob != bounds[1].Knob || !steps[0].BE || steps[0].Owner != plan.OwnerWatchdog {
		t.Errorf("got %v", steps)
	}
}

// TestNarrowNeverWidens draws present values and bounds at random. Each step
// must allow less than the present value, and no part of it may allow more. If
// Narrow is called again afterwards, it must return no steps.
func TestNarrowNeverWidens(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		now := node.Knobs{Kernel: kernel(1 + r.IntN(2)), Now: map[node.Knob]node.Value{}}
		var bounds []Bound
		for _, f := range node.Files {
			k := knob("be", f)
			now.Now[k] = anyValue(r, f).Round(now.Kernel)
			bounds = append(bounds, Bound{Knob: k, Value: anyValue(r, f)})
		}
		for _, s := range Narrow(now, bounds) {
			if s.To.CompareWidth(s.From) >= 0 || widerInPart(s.From, s.To) {
				t.Fatalf("%v widens (bounds %v)", s, bounds)
			}
			now.Now[s.Knob] = s.To
		}
		if again := Narrow(now, bounds); len(again) > 0 {
			t.Fatalf("a second pass has the steps %v (bounds %v)", again, bounds)
		}
	}
}

func widerInPart(from, to node.Value) bool {
	switch f := from.(type) {
	case node.CPUMax:
		return to.(node.CPUMax).Burst > f.Burst
	case node.CPUs:
		return !f.Set.Empty() && !f.Set.Contains(to.(node.CPUs).Set)
	case node.Memory:
		m := to.(node.Memory)
		return m.Min > f.Min || m.Low > f.Low || m.High > f.High || m.Max > f.Max
	}
	return false
}

func anyValue(r *rand.Rand, f node.File) node.Value {
	bytes := func() unit.Bytes {
		if r.IntN(3) == 0 {
			return unit.MaxBytes
		}
		return unit.Bytes(r.IntN(1 << 20))
	}
	switch f {
	case node.FileCPUWeight:
		if r.IntN(3) == 0 {
			return node.CPUWeight{Idle: true}
		}
		return node.CPUWeight{Weight: unit.WeightOfShares(int64(1 + r.IntN(3000)))}
	case node.FileCPUMax:
		v := node.CPUMax{Quota: node.NoQuota, Period: time.Duration(1+r.IntN(1000)) * time.Millisecond}
		if r.IntN(4) > 0 {
			v.Quota = time.Duration(r.Int64N(int64(4 * time.Second)))
			v.Burst = time.Duration(r.Int64N(int64(v.Quota) + 1))
		}
		return v
	case node.FileMemory:
		return node.Memory{Min: bytes(), Low: bytes(), High: bytes(), Max: bytes()}
	}
	if i := slices.IndexFunc(node.LimitFiles, func(l node.LimitFile) bool { return l.File == f }); i >= 0 {
		return node.LimitFiles[i].Of(r.Int64N(100))
	}
	var set unit.CPUSet
	for c := range unit.CPU(4) {
		if r.IntN(2) == 0 {
			set = set.With(c)
		}
	}
	return node.CPUs{Set: set}
}
