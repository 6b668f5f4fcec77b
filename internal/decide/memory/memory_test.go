package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A namespace in ack-slo-pod-config can enable shares that the configuration
// disables for the class.
func TestMemorySharesOfADisabledClassApplyToItsRequesters(t *testing.T) {
	off := Config{Off: map[node.Class]Shares{node.LS: {MinPercent: 100}}}
	for _, tc := range []struct {
		ask  node.MemoryOverride
		c    Config
		want unit.Percent
	}{
		{node.MemoryOverride{}, off, 0},
		{node.MemoryOverride{Enabled: true}, off, 100},
		{node.MemoryOverride{Enabled: true}, Config{}, 0},
		{node.MemoryOverride{Enabled: true}, Config{Classes: map[node.Class]Shares{node.LS: {MinPercent: 30}}, Off: off.Off}, 30},
		{node.MemoryOverride{OwnOnly: true}, Config{Classes: off.Off}, 0},
	} {
		s := node.Snapshot{Workloads: []node.Workload{{ID: "shop/web", Class: node.LS, Cgroup: "web", Overrides: node.Overrides{Memory: tc.ask}}}}
		if got := holdersOf(tc.c, s)[0].MinPercent; got != tc.want {
			t.Errorf("%+v asks for %+v: min %v, want %v", tc.c, tc.ask, got, tc.want)
		}
	}
}

// TestProtectionSumsNeverOverflow checks sums that are too large for the type.
// They must become "no limit", because a parent must never have less than one
// of its children.
func TestProtectionSumsNeverOverflow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(19, 20))
	for range 300 {
		leaves := map[node.CgroupPath]protection{}
		for range rnd.IntN(12) {
			p := node.CgroupPath("a")
			for range rnd.IntN(5) {
				p = p.Join(fmt.Sprint(rnd.IntN(3)))
			}
			least := unit.Bytes(rnd.Int64() >> rnd.IntN(64))
			leaves[p] = protection{least, max(least, unit.Bytes(rnd.Int64()>>rnd.IntN(64)))}
		}
		needs, paths := protectAbove(leaves, nil)
		if len(needs) != len(paths) {
			t.Fatalf("%d paths for %d needs", len(paths), len(needs))
		}
		for p, n := range needs {
			if n.min < leaves[p].min || n.low < leaves[p].low || n.low < n.min {
				t.Fatalf("%s needs %+v and gets %+v", p, leaves[p], n)
			}
			if up, above := needs[p.Parent()]; above && (up.min < n.min || up.low < n.low) {
				t.Fatalf("%s has %+v and its parent %+v", p, n, up)
			}
		}
	}
}

// TestTheKubeletsProtectionStands decides on a node whose kubelet protects the memory of
// pods. Tenon must want none for services in pods, which would change the kubelet's
// value, and give back what it has written before. A service outside of pods and
// best-effort pods are Tenon's as before.
func TestTheKubeletsProtectionStands(t *testing.T) {
	c := Config{Classes: map[node.Class]Shares{node.LS: {MinPercent: 100, LowPercent: 100}, node.LSR: {ThrottlingPercent: 50}, node.BE: {LowPercent: 20}}}
	kubelets := node.Memory{Min: gib, Low: gib, High: unit.MaxBytes, Max: unit.MaxBytes}
	build := func() *tree {
		x := newTree()
		x.MemoryTotal = node.Some(64 * gib)
		x.add("kubepods/burstable/web", "kubepods/burstable", node.LS, 4*gib, gib)
		x.add("kubepods/db", "kubepods/db", node.LSR, 2*gib, gib)
		x.add("kubepods/besteffort/job", "kubepods/besteffort", node.BE, 2*gib, gib)
		x.add("system/nginx", "system", node.LS, 4*gib, gib)
		for i := range 3 {
			x.Workloads[i].Pod = true
		}
		x.Knobs.Now[knobOf("kubepods/burstable/web")], x.Knobs.Now[knobOf("kubepods/db")] = kubelets, kubelets
		return x
	}
	of := func(x *tree, p node.CgroupPath) (w plan.Want) {
		for _, w = range Decide(c, x.Snapshot) {
			if w.Knob == knobOf(p) {
				return w
			}
		}
		t.Fatalf("no want for %s", p)
		return w
	}
	if w := of(build(), "kubepods/burstable/web"); w.Intent != plan.Set || w.Value == kubelets {
		t.Errorf("without the kubelet's protection: %+v", w)
	}
	c.ProtectedExternally = true
	x := build()
	if w := of(x, "kubepods/burstable/web"); w.Intent != plan.Abstain {
		t.Errorf("a service: %+v", w)
	}
	if w := of(x, "kubepods/db"); w.Intent != plan.Set || w.Value.(node.Memory).Min != gib || w.Value.(node.Memory).High != 33*gib {
		t.Errorf("a service that is throttled: %+v", w)
	}
	if w := of(x, "system/nginx"); w.Intent != plan.Set || w.Value.(node.Memory).Min != 4*gib {
		t.Errorf("a service outside of pods: %+v", w)
	}
	if w := of(x, "kubepods/besteffort/job"); w.Intent != plan.Set || w.Value.(node.Memory).Low == 0 {
		t.Errorf("best-effort work: %+v", w)
	}
	x.Knobs.Before[knobOf("kubepods/burstable/web")] = kubelets
	x.Knobs.Now[knobOf("kubepods/burstable/web")] = node.Memory{Min: 4 * gib, Low: 4 * gib, High: unit.MaxBytes, Max: unit.MaxBytes}
	if w := of(x, "kubepods/burstable/web"); w.Intent != plan.Release {
		t.Errorf("a service that Tenon protected before: %+v", w)
	}
}

// TestWhatTheKubeletWritesLaterStands has a kubelet that raises its protection after Tenon's
// first write. Tenon must never write the older value: not to a service that it throttles,
// and not to the cgroups above best-effort pods that it protects. It releases first what it
// has written itself. A release keeps the parts that another component wrote since.
func TestWhatTheKubeletWritesLaterStands(t *testing.T) {
	c := Config{Classes: map[node.Class]Shares{node.LS: {ThrottlingPercent: 50}, node.BE: {LowPercent: 100}}, ProtectedExternally: true}
	const web, pods = node.CgroupPath("kubepods/web"), node.CgroupPath("kubepods")
	build := func() *tree {
		x := newTree()
		x.MemoryTotal = node.Some(64 * gib)
		x.add(web, web, node.LS, 2*gib, gib)
		x.add("kubepods/besteffort/job", "kubepods/besteffort", node.BE, 3*gib, 2*gib)
		x.add("system/tool", "system", node.BE, 3*gib, 2*gib)
		x.Workloads[0].Pod, x.Workloads[1].Pod = true, true
		x.Knobs.Now[knobOf(web)] = node.Memory{Min: gib, Low: gib, High: unit.MaxBytes, Max: unit.MaxBytes}
		x.tick(c)
		return x
	}
	raise := func(x *tree, p node.CgroupPath, to unit.Bytes) {
		m := x.setting(p)
		m.Min, m.Low = to, to
		x.Knobs.Now[knobOf(p)] = m
	}
	wants := func(x *tree) map[node.CgroupPath]plan.Want {
		all := map[node.CgroupPath]plan.Want{}
		for _, w := range Decide(c, x.Snapshot) {
			all[w.Knob.Cgroup] = w
		}
		return all
	}
	release := func(x *tree, p node.CgroupPath) { delete(x.Knobs.Before, knobOf(p)) }

	x := build()
	if n := x.tick(c); n > 0 || x.setting(web).High != 33*gib || x.setting(web).Min != gib || x.setting(pods).Low == 0 {
		t.Fatalf("%d writes in the second tick; the service has %+v, kubepods %+v", n, x.setting(web), x.setting(pods))
	}
	for _, p := range []node.CgroupPath{web, pods} {
		x := build()
		raise(x, p, 8*gib)
		if w := wants(x)[p]; w.Intent != plan.Release {
			t.Fatalf("%s, which the kubelet has raised: %+v", p, w)
		}
		release(x, p)
		x.tick(c)
		if got := x.setting(p); got.Min != 8*gib || got.Low != 8*gib {
			t.Errorf("%s has %+v after a release, want what the kubelet wrote", p, got)
		}
		if w := wants(x)[p]; w.Intent != plan.Set || x.tick(c) != 0 {
			t.Errorf("%s is not left alone: %+v", p, w)
		}
	}
	// A value of the kubelet below what Tenon wants is no reason to release.
	low := x.setting(pods)
	low.Low = gib
	x.Knobs.Now[knobOf(pods)] = low
	if w := wants(x)[pods]; w.Intent != plan.Set || w.Value.(node.Memory).Low < 2*gib {
		t.Errorf("kubepods with less than best-effort pods need: %+v", w)
	}
	// The kubelet does not write above other work.
	raise(x, "system", 8*gib)
	if w := wants(x)["system"]; w.Intent != plan.Set || w.Value.(node.Memory).Min != 0 {
		t.Errorf("above work outside of pods: %+v", w)
	}
}
