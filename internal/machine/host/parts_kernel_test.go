package host_test

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAThrottledContainerIsCountedForItsPod runs a pod whose containers have
// limits. One container is throttled. The pod itself has no limit, but must
// count as throttled.
func TestAThrottledContainerIsCountedForItsPod(t *testing.T) {
	m := open(t, false)
	if m.tree.VersionOf("cpu") == 0 {
		skip(t, "no controller cpu")
	}
	pod := m.group(t, "pod")
	t.Cleanup(func() { do(t, m.tree.RemoveAll(string(pod))) })
	for _, c := range []string{"busy", "quiet"} {
		do(t, m.tree.Make(string(pod.Join(c))))
		do(t, m.tree.WriteCPUMax(string(pod.Join(c)), cgroup.CPUMax{Quota: 2 * time.Millisecond, Period: 100 * time.Millisecond}))
	}
	pid, err := m.Start(pod.Join("busy"), 0)
	do(t, err)
	t.Cleanup(func() { do(t, m.Stop(pid)) })
	worked := make(chan error, 1)
	go func() { worked <- m.tell(pid, "burn 900ms") }() // for 45 s, under its limit
	t.Cleanup(func() {
		// With its limit, the process would work for many more seconds.
		do(t, m.tree.WriteCPUMax(string(pod.Join("busy")), cgroup.CPUMax{Quota: node.NoQuota, Period: 100 * time.Millisecond}))
		do(t, <-worked)
	})
	limit := node.Some(unit.MilliCPU(20))
	// If one container has no limit, the pod as a whole has none.
	for _, of := range []node.Maybe[unit.MilliCPU]{limit, {}} {
		m.Manage(node.Workload{
			ID: "web", Class: node.LS, Cgroup: pod, CPULimit: of,
			Containers: []node.Container{{Name: "busy", Cgroup: pod.Join("busy"), CPULimit: limit}, {Name: "quiet", Cgroup: pod.Join("quiet"), CPULimit: of}},
		})
		// On v1 the host reads these counters every 10 s.
		for end := time.Now().Add(25 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			s, err := m.Snapshot(t.Context())
			do(t, err)
			if u := s.Workloads[0].Usage; u.ThrottledPeriods.Or(0) > 0 && u.Periods.Or(0) >= u.ThrottledPeriods.Or(0) {
				break
			} else if time.Now().After(end) {
				t.Fatalf("in 25 s it was throttled in %v of %v periods; the whole has the limit %v", u.ThrottledPeriods, u.Periods, of)
			}
		}
	}
}
