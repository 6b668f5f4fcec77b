package host_test

import (
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
)

// TestCgroupsInsidePodsAreNarrowedWithThem has two pods of class LS, of which one
// asks for a CPU of its own, as ACK's annotation allows. In each pod there is a
// cgroup of no known container, such as that of its sandbox. On cgroup v1 the
// kernel refuses to narrow the cpuset of the pod while such a cgroup has more. It
// must refuse no step.
func TestCgroupsInsidePodsAreNarrowedWithThem(t *testing.T) {
	m := open(t, false)
	if m.tree.VersionOf("cpuset") != 1 {
		t.Skip("on cgroup v2 a cgroup may have fewer CPUs than the cgroups below it")
	}
	var workloads []node.Workload
	inside := map[node.CgroupPath]node.CgroupPath{}
	for _, name := range []string{"db", "web"} {
		p := m.group(t, name)
		inside[p] = m.group(t, name+"/sandbox")
		workloads = append(workloads, node.Workload{ID: node.WorkloadID(name), Class: node.LS, Cgroup: p, ContentionRoot: p})
	}
	workloads[0].Overrides.CPUs.PodRequest = cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 1}}
	m.ManageOnly(workloads)
	s, err := m.Snapshot(t.Context())
	do(t, err)
	if len(s.Topology.CPUs) < 2 {
		t.Skip("needs two CPUs")
	}
	st, wants := policy.Decide(policy.Config{}, policy.State{}, s)
	for _, step := range plan.Diff(s.Knobs, wants) {
		if err := m.Apply(t.Context(), step); err != nil {
			t.Errorf("%v: %v", step, err)
		}
	}
	own, has := st.CPUs.Exclusive("db")
	if !has {
		t.Fatal(st.CPUs.Text("db"))
	}
	for _, w := range workloads {
		pod, err := m.tree.ReadCPUs(string(w.Cgroup))
		do(t, err)
		sandbox, err := m.tree.ReadCPUs(string(inside[w.Cgroup]))
		do(t, err)
		if right := pod == own && w.ID == "db" || pod.Intersect(own).Empty() && w.ID == "web"; !right || sandbox != pod {
			t.Errorf("%s has CPUs %v and the cgroup in it %v, and %v are those of db", w.ID, pod, sandbox, own)
		}
	}
	_, err = m.Restore(t.Context())
	do(t, err)
}
