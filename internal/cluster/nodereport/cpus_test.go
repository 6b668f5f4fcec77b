package nodereport

import (
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestTheReportSaysWhoHoldsWhichCPUs checks three cases: a pod whose chosen
// CPUs the node cannot give it, a pod that demands too much, and a workload
// that is not a pod.
func TestTheReportSaysWhoHoldsWhichCPUs(t *testing.T) {
	s := node.Snapshot{At: time.Unix(1, 0), Knobs: node.Knobs{Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}}
	for c := range 8 {
		s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c / 2), L3: node.CacheID(c / 4)})
	}
	add := func(name string, class node.Class, o node.CPUOverride) {
		w := node.Workload{ID: node.WorkloadID(name), Class: class, Cgroup: node.CgroupPath(name), CPURequest: node.Some(unit.CPUs(2)), Overrides: node.Overrides{CPUs: o}}
		s.Workloads = append(s.Workloads, w)
		s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
	}
	chosen := &cpus.Choice{Topology: 0xff, Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(0, 1)}
	add("pod", node.LS, node.CPUOverride{Pod: "uid-1", PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 2}}, Chosen: chosen})
	add("large", node.LS, node.CPUOverride{Pod: "uid-2", PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 7}}})
	add("pool", node.LS, node.CPUOverride{Pod: "uid-3", PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 500}}})
	add("unit", node.LSE, node.CPUOverride{})
	var config policy.Config
	state, wants := policy.Decide(config, policy.State{}, s)
	v := View{Tick: tick.Tick{Snapshot: s, Wants: wants, Held: state.CPUs}, Policy: config}
	got := Status(v, nil).CPUs
	if got == nil || len(got.Pods) != 3 || len(got.Caches) != 2 || got.Keep != 1 {
		t.Fatalf("%+v", got)
	}
	if h := got.Pods[0]; h.UID != "uid-1" || h.Policy != "exclusive" || h.By != "node" || h.Code != "ChoiceForTopology" || h.Why != "its scheduler's choice is for another topology" {
		t.Errorf("the pod whose choice is for another topology: %+v", h)
	}
	if h := got.Pods[2]; h.UID != "uid-3" || h.Policy != "pool" || h.Domain == "" || h.Request != 500 {
		t.Errorf("the pool: %+v", h)
	}
	if p := got.Pods[1]; p.UID != "uid-2" || p.Pod != "large" || p.CPUs != "" || p.Policy != "exclusive" || p.Code != "ForServices" || p.Numbers.Asked != 7 || got.Reserved == "" {
		t.Errorf("refused %+v, reserved %q", got.Pods, got.Reserved)
	}
	r, err := cpureport.Read(got)
	if err != nil || len(r.Pods) != 3 || r.Reserved.Len() != 2 || !r.Pods["uid-2"].CPUs.Empty() {
		t.Errorf("a scheduler reads %+v, %v", r, err)
	}
	for manager, want := range map[string]cpus.Code{"": cpus.Fits, "static": cpus.OtherManager, "dra": cpus.OtherManager} {
		v.CPUManager = manager
		r, err := cpureport.Read(Status(v, nil).CPUs)
		if err != nil {
			t.Fatal(err)
		}
		l := place.New()
		l.Learn("n", r)
		if _, why := l.Assume(place.Pod{UID: "new", Request: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 1}}}, "n"); why != want {
			t.Errorf("with the manager %q a scheduler finds %q, want %q", manager, why, want)
		}
	}
	var p Pace
	p.Sent(s.At, v1alpha1.NodeReportStatus{CPUs: got})
	next := *got
	next.Pods = next.Pods[:2]
	if at := s.At.Add(2 * time.Second); !p.Due(at, v1alpha1.NodeReportStatus{CPUs: &next}) || p.Due(at, v1alpha1.NodeReportStatus{CPUs: got}) {
		t.Error("a report is due after a second exactly if the CPUs changed")
	}
}
