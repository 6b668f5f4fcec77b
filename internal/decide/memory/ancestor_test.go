package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const gib = unit.Bytes(1 << 30)

// A tree is a node whose kernel has the mount option memory_recursiveprot.
// Besides the workloads of the snapshot it has other memory, which is in no
// workload.
type tree struct {
	node.Snapshot
	other map[node.CgroupPath]unit.Bytes
}

func newTree() *tree {
	return &tree{node.Snapshot{
		Capabilities: node.Capabilities{node.FeatureMemoryProtect: {Verdict: node.Yes}},
		Knobs: node.Knobs{
			Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096, RecursiveProtection: true},
			Now:    map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{},
		},
	}, map[node.CgroupPath]unit.Bytes{}}
}

func knobOf(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileMemory} }

func (x *tree) add(p, root node.CgroupPath, c node.Class, request, used unit.Bytes) {
	w := node.Workload{ID: node.WorkloadID(p), Class: c, Cgroup: p, ContentionRoot: root}
	w.Usage.Memory = node.Some(used)
	if request > 0 {
		w.MemoryRequest = node.Some(request)
	}
	x.Workloads = append(x.Workloads, w)
	for ; p != ""; p = p.Parent() {
		x.Knobs.Now[knobOf(p)] = node.NoMemoryLimit
	}
}

// tick decides and writes, and returns how many knobs it wrote.
func (x *tree) tick(c Config) (writes int) {
	for _, w := range Decide(c, x.Snapshot) {
		if now := x.Knobs.Now[w.Knob]; w.Intent == plan.Set && now != w.Value {
			if _, touched := x.Knobs.Before[w.Knob]; !touched {
				x.Knobs.Before[w.Knob] = now
			}
			x.Knobs.Now[w.Knob] = w.Value
			writes++
		}
	}
	return writes
}

func (x *tree) setting(p node.CgroupPath) node.Memory {
	m, _ := x.Knobs.Now[knobOf(p)].(node.Memory)
	return m
}

// usage returns the memory in and below p.
func (x *tree) usage(p node.CgroupPath) unit.Bytes {
	var sum unit.Bytes
	for _, w := range x.Workloads {
		if p.Contains(w.Cgroup) {
			sum += w.Usage.Memory.Or(0)
		}
	}
	for q, b := range x.other {
		if p.Contains(q) {
			sum += b
		}
	}
	return sum
}

// effective returns the memory of p that the kernel does not reclaim, at the
// most. It is page_counter_calculate_protection and effective_protection of
// mm/page_counter.c (Linux 6.18).
func (x *tree) effective(p node.CgroupPath, of func(node.Memory) unit.Bytes) unit.Bytes {
	parent, setting, usage := p.Parent(), float64(of(x.setting(p))), float64(x.usage(p))
	if parent == "" {
		return unit.Bytes(setting)
	}
	var siblings float64
	for q := range x.Knobs.Now {
		if q.Cgroup.Parent() == parent {
			siblings += min(float64(x.usage(q.Cgroup)), float64(of(x.setting(q.Cgroup))))
		}
	}
	above, protected := float64(x.effective(parent, of)), min(usage, setting)
	if siblings > above {
		return unit.Bytes(protected * above / siblings)
	}
	e := protected
	if all := float64(x.usage(parent)); above > siblings && all > siblings && usage > protected {
		e += (above - siblings) * (usage - protected) / (all - siblings)
	}
	return unit.Bytes(e)
}

func minOf(m node.Memory) unit.Bytes { return m.Min }
func lowOf(m node.Memory) unit.Bytes { return m.Low }

// A service that uses less than its setting leaves the rest of the protection
// of its ancestors to the BE work below them.
func TestBEIsNotProtectedByWhatServicesLeave(t *testing.T) {
	c := Config{Classes: map[node.Class]Shares{node.LS: {MinPercent: 100}}}
	build := func() *tree {
		x := newTree()
		x.add("kubepods/burstable/web", "kubepods/burstable", node.LS, 60*gib, 20*gib)
		x.add("kubepods/besteffort/be", "kubepods/besteffort", node.BE, 0, 40*gib)
		return x
	}
	x := build()
	x.tick(c)
	if got := x.setting("kubepods").Min; got != 22*gib || x.setting("kubepods/burstable").Min != got {
		t.Errorf("kubepods has min %v and burstable %v, want 22 GiB", got, x.setting("kubepods/burstable").Min)
	}
	if got := x.setting("kubepods/burstable/web").Min; got != 60*gib {
		t.Errorf("the service has min %v, want its whole setting", got)
	}
	if web, be := x.effective("kubepods/burstable/web", minOf), x.effective("kubepods/besteffort/be", minOf); web < 20*gib || be > 2*gib {
		t.Errorf("the kernel protects %v of the service and %v of BE", web, be)
	}

	for name, change := range map[string]func(*tree){
		"without the mount option": func(x *tree) { x.Knobs.Kernel.RecursiveProtection = false },
		"the use is unknown":       func(x *tree) { x.Workloads[0].Usage.Memory = node.Maybe[unit.Bytes]{} },
		"BE is elsewhere": func(x *tree) {
			x.Workloads[0].ContentionRoot, x.Workloads[1].Cgroup = "kubepods", "batch/be"
		},
	} {
		x := build()
		change(x)
		x.tick(c)
		if got := x.setting("kubepods").Min; got != 60*gib {
			t.Errorf("%s: kubepods has min %v, want the sum of the settings", name, got)
		}
	}
	v1 := build()
	v1.Knobs.Kernel.CgroupVersion = 1
	if n := v1.tick(c); n > 0 {
		t.Errorf("%d writes on cgroup v1, which has no protection", n)
	}
}

// A service of the same class without a request, and work that no rule matches,
// are not protected either.
func TestOtherUnprotectedWorkIsNotProtected(t *testing.T) {
	c := Config{Classes: map[node.Class]Shares{node.LS: {MinPercent: 100}}}
	x := newTree()
	x.add("ls/web", "ls", node.LS, 60*gib, 20*gib)
	x.add("ls/tool", "ls", node.LS, 0, 40*gib)
	x.add("app/db", "app/db", node.LS, 60*gib, 20*gib) // something else is in app
	x.tick(c)
	for _, p := range []node.CgroupPath{"ls", "app"} {
		if got := x.setting(p).Min; got != 22*gib {
			t.Errorf("%s has min %v, want 22 GiB", p, got)
		}
	}
}

// The memory of a pod is known, that of its containers is not.
func TestTheMemoryOfAPodCountsForItsContainers(t *testing.T) {
	x := newTree()
	pod := node.CgroupPath("kubepods/burstable/web")
	x.add(pod, "kubepods/burstable", node.LS, 0, 20*gib)
	x.Workloads[0].Containers = []node.Container{{Name: "main", Cgroup: pod.Join("main"), MemoryRequest: node.Some(60 * gib)}}
	x.Knobs.Now[knobOf(pod.Join("main"))] = node.NoMemoryLimit
	x.tick(Config{Classes: map[node.Class]Shares{node.LS: {MinPercent: 100}}})
	for p, want := range map[node.CgroupPath]unit.Bytes{pod.Join("main"): 60 * gib, pod: 60 * gib, "kubepods/burstable": 22 * gib, "kubepods": 22 * gib} {
		if got := x.setting(p).Min; got != want {
			t.Errorf("%s has min %v, want %v", p, got, want)
		}
	}
}

// TestServicesKeepTheirProtection checks random trees over time. At any level,
// ancestors hold unprotected work. After each tick the kernel must protect all
// memory of each service up to its setting, and beyond the sum of that at most
// the room.
func TestServicesKeepTheirProtection(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 7))
	c := Config{Classes: map[node.Class]Shares{node.LS: {MinPercent: 50, LowPercent: 100}}}
	for range 60 {
		x := newTree()
		x.add("top/be", "top/be", node.BE, 0, gib)
		for i := range 1 + rnd.IntN(8) {
			p := node.CgroupPath("top")
			for range rnd.IntN(4) {
				p = p.Join(fmt.Sprint("n", rnd.IntN(2)))
			}
			request := unit.Bytes(rnd.Int64N(int64(20 * gib)))
			x.add(p.Join(fmt.Sprint("ls", i)), p, node.LS, request, unit.Bytes(rnd.Int64N(int64(25*gib))))
		}
		for _, w := range x.Workloads {
			for p := w.Cgroup.Parent(); p != ""; p = p.Parent() {
				x.other[p.Join("other")] = unit.Bytes(rnd.Int64N(int64(10 * gib)))
			}
		}
		for range 20 {
			for i := range x.Workloads {
				w := &x.Workloads[i]
				now := w.Usage.Memory.Or(0)
				w.Usage.Memory = node.Some(now + unit.Bytes((rnd.Float64()*0.3-0.15)*float64(now)))
			}
			x.tick(c)
			if n := x.tick(c); n > 0 {
				t.Fatalf("%d writes, although nothing has changed", n)
			}
			x.check(t)
		}
	}
}

func (x *tree) check(t *testing.T) {
	t.Helper()
	const rounding = 1 << 20
	for name, of := range map[string]func(node.Memory) unit.Bytes{"min": minOf, "low": lowOf} {
		var used, settings unit.Bytes
		for _, w := range x.Workloads {
			need := min(w.Usage.Memory.Or(0), of(x.setting(w.Cgroup)))
			if got := x.effective(w.Cgroup, of); got+rounding < need {
				t.Fatalf("the kernel protects %v (%s) of %s, want %v", got, name, w.Cgroup, need)
			}
			used += need
			settings += of(x.setting(w.Cgroup))
		}
		top := of(x.setting("top"))
		// There are at most 15 ancestors, each with its room.
		if most := used + used/5 + 15*2*leastRoom; top > most || top > settings {
			t.Fatalf("top has %s %v for %v of %v, want at most %v", name, top, used, settings, most)
		}
	}
}

// A use that swings within the room causes no writes.
func TestAncestorsAreNotWrittenInEachTick(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 9))
	c := Config{Classes: map[node.Class]Shares{node.LS: {MinPercent: 50, LowPercent: 100}}}
	x := newTree()
	x.add("kubepods/burstable/web", "kubepods/burstable", node.LS, 40*gib, 20*gib)
	x.add("kubepods/api", "kubepods/api", node.LS, 20*gib, gib)
	x.add("kubepods/besteffort/be", "kubepods/besteffort", node.BE, 0, 40*gib)
	x.Knobs.Now[knobOf("kubepods/burstable")] = node.Memory{Low: 30 * gib, High: unit.MaxBytes, Max: unit.MaxBytes} // from its owner
	x.tick(c)
	for range 1000 {
		x.Workloads[0].Usage.Memory = node.Some(20*gib + unit.Bytes(rnd.Int64N(int64(gib)))*9/10)
		x.Workloads[1].Usage.Memory = node.Some(gib + unit.Bytes(rnd.Int64N(int64(100<<20))))
		if n := x.tick(c); n > 0 {
			t.Fatalf("%d writes at %v", n, x.Workloads[0].Usage.Memory)
		}
	}
}
