package isolation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A scene is a snapshot, and the wants from which Orders derives the orders.
type scene struct {
	snap  node.Snapshot
	roots []node.CgroupPath
	wants []plan.Want
}

// newScene returns a scene. It has the BE work a and b below the contention
// root be, the LS work web, and a want for the scheduler.
func newScene() *scene {
	n := &scene{snap: node.Snapshot{Knobs: node.Knobs{
		Kernel: node.Kernel{CgroupVersion: 2}, Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{},
	}}}
	n.quota("be", 0)
	n.add(node.Workload{ID: "a", Class: node.BE, Cgroup: "be/a", ContentionRoot: "be"}, "be")
	n.add(node.Workload{ID: "b", Class: node.BE, Cgroup: "be/b", ContentionRoot: "be"}, "be")
	n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"}, "")
	n.want(node.Knob{File: node.FileScheduler}, node.Scheduler{Loaded: true, Siblings: true, Gentle: "LSR"})
	n.want(node.Knob{Cgroup: "be", File: node.FilePolicy}, node.ThreadsBE)
	return n
}

func (n *scene) add(w node.Workload, meet node.CgroupPath) {
	n.snap.Workloads = append(n.snap.Workloads, w)
	n.roots = append(n.roots, meet)
	n.quota(w.Cgroup, 0)
	n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUWeight}] = node.CPUWeight{Weight: unit.WeightOf(100)}
}

func (n *scene) want(k node.Knob, v node.Value) {
	n.wants = append(n.wants, plan.Want{Intent: plan.Set, Knob: k, Value: v})
}

// quota sets the quota of a cgroup. With 0 there is no limit.
func (n *scene) quota(p node.CgroupPath, m unit.MilliCPU) {
	v := node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	if m > 0 {
		v = node.Limit(m)
	}
	n.snap.Knobs.Now[maxOf(p)] = v
}

func maxOf(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCPUMax} }

func orderOf(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileSchedulerGroup} }

// orders returns the wanted order of each cgroup as text. If a want has no
// value, the text is its intent.
func (n *scene) orders(t *testing.T) map[string]string {
	t.Helper()
	wants, _ := Orders(n.snap, n.roots, n.wants)
	all := map[string]string{}
	for _, w := range wants {
		if w.Owner != plan.OwnerOrders || w.Reason == "" || (w.Intent == plan.Set) != (w.Value != nil) {
			t.Errorf("incomplete: %+v", w)
		}
		if _, twice := all[w.Knob.Object()]; twice && w.Knob.Cgroup != "" {
			t.Errorf("%v is wanted twice", w.Knob)
		}
		text := string(w.Intent)
		if w.Intent == plan.Set {
			text = w.Value.String()
			if back, err := node.ParseValue(w.Knob.File, text); err != nil || back != w.Value {
				t.Errorf("%v is to be %q, which reads as %v, %v", w.Knob, text, back, err)
			}
		}
		all[w.Knob.Object()] = text
	}
	return all
}

// obey applies the wanted orders to the snapshot.
func (n *scene) obey(t *testing.T) {
	t.Helper()
	wants, _ := Orders(n.snap, n.roots, n.wants)
	for _, s := range plan.Diff(n.snap.Knobs, wants) {
		n.snap.Knobs.Now[s.Knob] = s.To
	}
}

// check compares the orders with want. A cgroup that is missing in want may
// have any order.
func (n *scene) check(t *testing.T, want map[string]string) {
	t.Helper()
	got := n.orders(t)
	maps.DeleteFunc(got, func(p, _ string) bool { _, named := want[p]; return !named })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
}

func TestWithoutASchedulerThereAreNoOrders(t *testing.T) {
	for name, w := range map[string]plan.Want{
		"it waits":         {Intent: plan.Abstain, Knob: node.Knob{File: node.FileScheduler}},
		"it is given back": {Intent: plan.Release, Knob: node.Knob{File: node.FileScheduler}},
		"it is to be gone": {Intent: plan.Set, Knob: node.Knob{File: node.FileScheduler}, Value: node.Scheduler{}},
	} {
		n := newScene()
		n.wants[0] = w
		n.snap.Knobs.Now[orderOf("be/a")] = node.SchedulerGroup{Class: node.SchedulerBE}
		if got := n.orders(t); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestOrdersCarryWeightsAndQuotas(t *testing.T) {
	n := newScene()
	n.want(maxOf("be"), node.Limit(1500))
	n.want(maxOf("be/a"), node.CPUMax{Quota: 5 * time.Millisecond, Period: 20 * time.Millisecond})
	n.want(node.Knob{Cgroup: "be/b", File: node.FileCPUWeight}, node.CPUWeight{Weight: unit.WeightOf(300)})
	n.snap.Knobs.Now[node.Knob{Cgroup: "be/a", File: node.FileCPUWeight}] = node.CPUWeight{Idle: true}
	n.check(t, map[string]string{
		"/": "1500m", "be": "BE", "be/a": "BE slot 1 weight 100 quota 250m", "be/b": "BE slot 2 weight 300", "ls/web": "LSX",
	})
	// If a want releases the quota, this takes effect in the same plan.
	n.wants[2] = plan.Want{Intent: plan.Release, Knob: maxOf("be")}
	n.snap.Knobs.Now[maxOf("be")], n.snap.Knobs.Before[maxOf("be")] = node.Limit(1500), node.Limit(7000)
	n.check(t, map[string]string{"/": "7000m"})
}

// TestOneRootWithoutAQuotaLiftsNoOther checks two contention roots. One has no
// quota, so that there is no common cap. The slots below the other root must
// still have its quota.
func TestOneRootWithoutAQuotaLiftsNoOther(t *testing.T) {
	n := newScene()
	n.quota("be", 500)
	n.quota("be/a", 100)
	n.quota("free", 0)
	n.add(node.Workload{ID: "c", Class: node.BE, Cgroup: "free/c", ContentionRoot: "free"}, "free")
	n.want(node.Knob{Cgroup: "free", File: node.FilePolicy}, node.ThreadsBE)
	n.check(t, map[string]string{
		"/": "max", "be/a": "BE slot 1 weight 100 quota 100m", "be/b": "BE slot 2 weight 100 quota 250m", "free/c": "BE slot 3 weight 100",
	})
}

func TestALimitThatCannotBeReadStays(t *testing.T) {
	n := newScene()
	n.quota("be", 500)
	n.quota("be/a", 200)
	n.obey(t)
	delete(n.snap.Knobs.Now, maxOf("be"))
	delete(n.snap.Knobs.Now, maxOf("be/a"))
	n.check(t, map[string]string{"/": "abstain", "be/a": "BE slot 1 weight 100 quota 200m"})
}

// TestAWorkloadsOwnRankGoesBeforeItsClass uses the class LSR, which does not
// expel BE in this scene.
func TestAWorkloadsOwnRankGoesBeforeItsClass(t *testing.T) {
	n := newScene()
	want := map[string]string{}
	for name, w := range map[string]struct {
		class node.Class
		rank  node.Maybe[node.Identity]
		want  string
	}{
		"nothing-is-asked":        {node.LS, node.Maybe[node.Identity]{}, "LSX"},
		"it-is-nothing-special":   {node.LS, node.Some(node.IdentityNone), "NORMAL"},
		"it-keeps-no-sibling":     {node.LS, node.Some(node.IdentityHigh), "LS"},
		"of-a-class-that-expels":  {node.LS, node.Some(node.IdentityExpels), "LSX"},
		"its-class-does-not":      {node.LSR, node.Maybe[node.Identity]{}, "LS"},
		"but-it-does":             {node.LSR, node.Some(node.IdentityExpels), "LSX"},
		"the-system":              {node.System, node.Maybe[node.Identity]{}, "NORMAL"},
		"the-system-cannot-expel": {node.System, node.Some(node.IdentityExpels), "NORMAL"},
	} {
		n.add(node.Workload{ID: node.WorkloadID(name), Class: w.class, Cgroup: node.CgroupPath(name), Overrides: node.Overrides{Identity: w.rank}}, "")
		want[name] = w.want
	}
	n.check(t, want)
}

// TestOnlyThreadsOfTheSchedulerAreBEToIt checks that only threads in the BE
// scheduler get the class BE in its orders. Otherwise the scheduler would
// report each context switch of another thread as a stray.
func TestOnlyThreadsOfTheSchedulerAreBEToIt(t *testing.T) {
	n := newScene()
	n.add(node.Workload{ID: "lone", Class: node.BE, Cgroup: "lone"}, "") // its contention root is unknown
	n.add(node.Workload{ID: "guest", Class: node.LS, Cgroup: "be/a/guest", ContentionRoot: "be/a/guest"}, "")
	n.snap.Workloads[0].Ending = node.AskedToEnd
	run := node.Knob{Cgroup: "be/b", File: node.FileRun}
	n.snap.Knobs.Now[run] = node.Frozen
	n.check(t, map[string]string{"lone": "NORMAL", "be/a": "NORMAL", "be/a/guest": "LSX", "be/b": "BE slot 1 weight 100", "be": "BE"})
	n.snap.Knobs.Before[run] = node.Running // Tenon froze it and took its threads out
	n.check(t, map[string]string{"be/b": "NORMAL"})
	n.wants = n.wants[:1]
	n.check(t, map[string]string{"be/a": "NORMAL", "be/b": "NORMAL"})
}

func TestASlotStaysWithItsCgroup(t *testing.T) {
	n := newScene()
	n.obey(t)
	n.snap.Workloads, n.roots = n.snap.Workloads[1:], n.roots[1:] // a has ended
	n.check(t, map[string]string{"be/a": "none", "be/b": "BE slot 2 weight 100"})
	n.obey(t)
	n.add(node.Workload{ID: "c", Class: node.BE, Cgroup: "be/c", ContentionRoot: "be"}, "be")
	n.check(t, map[string]string{"be/c": "BE slot 1 weight 100", "be/b": "BE slot 2 weight 100"})
}

func TestMoreWorkloadsThanSlots(t *testing.T) {
	n := newScene()
	for i := range node.SchedulerSlots {
		p := node.CgroupPath(fmt.Sprintf("be/w%03d", i))
		n.add(node.Workload{ID: node.WorkloadID(p), Class: node.BE, Cgroup: p, ContentionRoot: "be"}, "be")
	}
	wants, slotless := Orders(n.snap, n.roots, n.wants)
	if slotless != 3 {
		t.Errorf("%d workloads have no slot, want 3", slotless)
	}
	shared, seen := 0, map[int]bool{}
	for _, w := range wants {
		v, is := w.Value.(node.SchedulerGroup)
		switch {
		case !is || w.Knob.Cgroup == "be" || v.Class != node.SchedulerBE:
		case v.Slot == 0:
			shared++
			if !strings.Contains(w.Reason, "all 255 slots are taken") {
				t.Errorf("the reason is %q", w.Reason)
			}
		case seen[v.Slot]:
			t.Errorf("slot %d is of two cgroups", v.Slot)
		default:
			seen[v.Slot] = true
		}
	}
	if shared != slotless {
		t.Errorf("%d orders share slot 0, want %d", shared, slotless)
	}
}

// TestWhatFindsNoRoomIsBE checks that the orders for LS work come first if
// there is not enough room for all orders.
func TestWhatFindsNoRoomIsBE(t *testing.T) {
	n := newScene()
	for i := range node.SchedulerGroups {
		p := node.CgroupPath(fmt.Sprintf("be/w%05d", i))
		n.add(node.Workload{ID: node.WorkloadID(p), Class: node.BE, Cgroup: p, ContentionRoot: "be"}, "be")
	}
	n.add(node.Workload{ID: "zz", Class: node.LS, Cgroup: "zz"}, "")
	wants, _ := Orders(n.snap, n.roots, n.wants)
	set := map[node.SchedulerClass]int{}
	for _, w := range wants {
		if v, is := w.Value.(node.SchedulerGroup); is {
			set[v.Class]++
		} else if w.Intent == plan.Abstain && !strings.HasPrefix(string(w.Knob.Cgroup), "be") {
			t.Errorf("%v finds no room", w.Knob)
		}
	}
	if set[node.SchedulerLSX] != 2 || set[node.SchedulerLSX]+set[node.SchedulerBE] != node.SchedulerGroups {
		t.Errorf("orders by class: %v", set)
	}
}

// TestOrdersAreTheSameForTheSameInput checks that two decisions on the same
// input are equal. When the orders have been applied, the next decision must
// have no steps.
func TestOrdersAreTheSameForTheSameInput(t *testing.T) {
	n := newScene()
	n.quota("be", 500)
	a, _ := Orders(n.snap, n.roots, n.wants)
	b, _ := Orders(n.snap, n.roots, n.wants)
	if !slices.Equal(a, b) {
		t.Errorf("%v\nand then\n%v", a, b)
	}
	n.obey(t)
	again, _ := Orders(n.snap, n.roots, n.wants)
	if steps := plan.Diff(n.snap.Knobs, again); len(steps) > 0 {
		t.Errorf("left: %v", steps)
	}
}
