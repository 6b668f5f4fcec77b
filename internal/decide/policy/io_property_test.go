package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// anyIO gives some classes random settings of block I/O. It also gives some
// cgroups a limit that was there before Tenon.
func (n *scene) anyIO(rnd *rand.Rand) {
	n.snap.Devices = nil
	for i := range rnd.IntN(4) {
		id := unit.Device{Major: 8, Minor: uint32(16 * i)}
		d := node.BlockDevice{Name: fmt.Sprint("sd", i), ID: id, Disk: id, Weighs: []node.File{"", node.FileIOWeight, node.FileBFQWeight}[rnd.IntN(3)]}
		part := node.BlockDevice{Name: d.Name + "p1", ID: unit.Device{Major: 8, Minor: uint32(16*i + 1)}, Disk: id, Weighs: d.Weighs}
		n.snap.Devices = append(n.snap.Devices, d, part)
	}
	n.config.IO.Classes = map[node.Class][]blockio.Device{}
	rate := func() int64 { return max(rnd.Int64N(2000)-1000, 0) }
	for _, c := range node.Classes {
		for range rnd.IntN(3) {
			n.config.IO.Classes[c] = append(n.config.IO.Classes[c], blockio.Device{
				Name: fmt.Sprintf("sd%d%s", rnd.IntN(4), []string{"", "p1"}[rnd.IntN(2)]), ReadBPS: rate(), WriteIOPS: rate(),
				WeightPercent: unit.Percent(rnd.IntN(101)),
			})
		}
	}
	for k := range n.snap.Knobs.Now {
		if k.File == node.FileIOMax && rnd.IntN(3) == 0 && len(n.snap.Devices) > 0 {
			l := node.NoIOLimits
			l.ReadBPS = 1 + rnd.Int64N(500)
			n.snap.Knobs.Now[k] = node.IOMaxOf(map[unit.Device]node.IOLimits{n.snap.Devices[0].Disk: l})
		}
	}
}

// TestBlockIOIsNeverMoreThanAsked runs random nodes and checks the writes. A
// class without settings must not change. No limit may exceed the one that the
// cgroup had before Tenon, and the limits of a class may together be at most
// its share.
func TestBlockIOIsNeverMoreThanAsked(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	for range 300 {
		version := 1 + rnd.IntN(2)
		n := anyScene(rnd, 8, version)
		n.anyIO(rnd)
		before := map[node.Knob]node.Value{}
		for k, v := range n.snap.Knobs.Now {
			before[k] = v
		}
		wants := blockio.Decide(n.config.IO, n.snap)
		for _, s := range plan.Diff(n.snap.Knobs, wants) {
			if s.To.CompareWidth(before[s.Knob]) > 0 || s.Release {
				t.Fatalf("%v gives more than there was before Tenon", s)
			}
			n.snap.Knobs.Before[s.Knob], n.snap.Knobs.Now[s.Knob] = before[s.Knob], s.To
		}
		if steps := plan.Diff(n.snap.Knobs, blockio.Decide(n.config.IO, n.snap)); len(steps) > 0 {
			t.Fatalf("the same node again makes %v", steps)
		}
		n.checkIO(t, wants)
		n.config.IO = blockio.Config{}
		n.decide(t)
		for k, v := range before {
			if k.File == node.FileIOMax && n.snap.Knobs.Now[k] != v {
				t.Fatalf("%v is %v after all was switched off, and was %v", k, n.snap.Knobs.Now[k], v)
			}
		}
	}
}

// checkIO checks which cgroups have wants, and the sum of the limits of each
// class.
func (n *scene) checkIO(t *testing.T, wants []plan.Want) {
	t.Helper()
	classOf := func(p node.CgroupPath) node.Class {
		for _, w := range n.snap.Workloads {
			if p.Contains(w.Cgroup) || w.Cgroup.Contains(p) {
				return w.Class
			}
		}
		return ""
	}
	sums := map[node.Class]map[unit.Device]int64{}
	for _, w := range wants {
		class := classOf(w.Knob.Cgroup)
		if len(n.config.IO.Classes[class]) == 0 {
			t.Fatalf("%v of class %q, which has no settings", w, class)
		}
		if v, is := w.Value.(node.IOMax); is {
			for d, l := range v.Limits() {
				if sums[class] == nil {
					sums[class] = map[unit.Device]int64{}
				}
				if l.ReadBPS != node.NoIORate {
					sums[class][d] += l.ReadBPS
				}
			}
		}
	}
	for class, blocks := range n.config.IO.Classes {
		for _, b := range blocks {
			targets, _ := blockio.Targets(b, n.snap.Devices)
			for _, d := range targets {
				if sum := sums[class][d.ID]; b.ReadBPS > int64(len(n.snap.Workloads)) && sum > b.ReadBPS {
					t.Fatalf("%s may read %d of %s together, and its cgroups %d", class, b.ReadBPS, d.Name, sum)
				}
			}
		}
	}
}
