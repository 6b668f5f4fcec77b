package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
)

// qos runs tenon isolation with -o json and returns its output.
func (s *site) qos(args ...string) control.QOS {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "tenon"), append([]string{"isolation", "--state-dir", s.state, "-o", "json"}, args...)...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("tenon isolation %v: %v\n%s", args, err, said.String())
	}
	var q control.QOS
	if err := json.Unmarshal(text, &q); err != nil {
		s.t.Fatalf("tenon isolation %v: %v\n%s", args, err, text)
	}
	return q
}

// choose runs tenon isolation. It waits until the mechanism is in use, and returns
// the output. In an emulator the kernel verifies a scheduler for longer than
// tenon waits.
func (s *site) choose(mechanism node.Mechanism, args ...string) control.QOS {
	s.t.Helper()
	then := time.Now()
	cmd := exec.Command(filepath.Join(s.bin, "tenon"), append([]string{"isolation", "--state-dir", s.state}, args...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		s.t.Logf("tenon isolation %v: %v\n%s", args, err, text)
		// On a slow machine, tenon may stop waiting before the mechanism is
		// loaded, or before the previous one is released. In that case one of
		// these two messages is correct, and the mechanism must be in use
		// later.
		if !strings.Contains(string(text), "tenond has applied it yet") && !strings.Contains(string(text), "not in use yet") {
			s.t.FailNow()
		}
	}
	var q control.QOS
	eventually(s.t, string(mechanism)+" is in use", func() bool {
		q = s.qos("show")
		return q.Selection.Mechanism == mechanism && len(q.Selection.Failures) == 0 && (mechanism != node.MechanismSchedExt || q.Means.Scheduler != nil && q.Means.Scheduler.Running)
	})
	s.t.Logf("%s is in use after %v", mechanism, time.Since(then).Round(time.Millisecond))
	return q
}

// runRefused runs tenon isolation, which must fail, and returns its error.
func (s *site) runRefused(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "tenon"), append([]string{"isolation", "--state-dir", s.state}, args...)...)
	text, err := cmd.CombinedOutput()
	if err == nil {
		s.t.Errorf("tenon isolation %v did not fail:\n%s", args, text)
	}
	return string(text)
}

// policy returns the scheduling policy of the batch job.
func (s *site) policy(pid int) task.Policy {
	s.t.Helper()
	p, err := task.PolicyOf(pid)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// checkIsolated checks that a mechanism is in use and affects the batch job.
func (s *site) checkIsolated(mechanism node.Mechanism, q control.QOS, job int) {
	s.t.Helper()
	if q.Selection.Mechanism != mechanism || !q.Selection.ByHand {
		s.t.Errorf("set %s: %+v", mechanism, q.Selection)
	}
	cookie, err := task.CoreCookie(job)
	if err != nil && mechanism == node.MechanismCoreSched {
		s.t.Errorf("set %s: the cookie of the job: %v", mechanism, err)
	}
	if has := cookie != 0; has != (mechanism == node.MechanismCoreSched) {
		s.t.Errorf("with %s the job has a cookie: %v", mechanism, has)
	}
	if ext := s.policy(job) == task.Ext; ext != (mechanism == node.MechanismSchedExt) {
		s.t.Errorf("with %s the job is SCHED_EXT: %v", mechanism, ext)
	}
	if running := q.Means.Scheduler != nil && q.Means.Scheduler.Running; running != (mechanism == node.MechanismSchedExt) {
		s.t.Errorf("with %s the scheduler runs: %v", mechanism, running)
	}
}

// goesOn checks that the batch job gets CPU time.
func (s *site) goesOn(job int) {
	s.t.Helper()
	used := func() time.Duration {
		v, err := s.tree.CPUUsage(string(s.path(batch)))
		if err != nil {
			s.t.Fatal(err)
		}
		return v
	}
	before := used()
	eventually(s.t, "the job goes on", func() bool { return used() > before+20*time.Millisecond })
}

// TestQOSIsLoadedAndUnloadedByHand selects each mechanism that this kernel
// supports while the job spins. Between two mechanisms it selects cpu.idle.
func TestQOSIsLoadedAndUnloadedByHand(t *testing.T) {
	s := plantSite(t, strings.Replace(generous, "period: 100ms", "period: 60s", 1))
	job := s.tasks[len(s.tasks)-1]
	d := s.tenond()
	var mechanisms []node.Mechanism
	for _, r := range s.qos("show").Selection.Mechanisms {
		if r.Can == node.Yes {
			mechanisms = append(mechanisms, r.Mechanism)
		}
		t.Logf("%s: %s: %s", r.Mechanism, r.Can, r.Why)
	}
	for _, mechanism := range mechanisms {
		s.checkIsolated(mechanism, s.choose(mechanism, "set", string(mechanism)), job)
		s.goesOn(job)
		s.checkIsolated(node.MechanismIdle, s.qos("set", "cpu.idle"), job)
		s.goesOn(job)
	}
	for _, mechanism := range mechanisms {
		s.checkIsolated(mechanism, s.choose(mechanism, "set", string(mechanism)), job)
	}
	for _, mechanism := range slices.Backward(mechanisms) {
		s.checkIsolated(mechanism, s.choose(mechanism, "set", string(mechanism)), job)
		s.goesOn(job)
	}
	q := s.qos("show")
	if len(q.Selection.Failures) > 0 || len(q.Failing) > 0 {
		t.Errorf("falls %+v, failing %+v", q.Selection.Failures, q.Failing)
	}
	d.stop()
	s.goesOn(job)
	s.restore()
	if policy := s.policy(job); policy != task.Normal {
		t.Errorf("after tenon restore the job has policy %v", policy)
	}
}

// TestQOSIsChosenByHandAndKept selects the two mechanisms that all test kernels
// support.
func TestQOSIsChosenByHandAndKept(t *testing.T) {
	// The period is so long that any change before the next tick must be an
	// effect of the choice.
	s := plantSite(t, strings.Replace(generous, "period: 100ms", "period: 60s", 1))
	d := s.tenond()
	auto := s.qos("show").Selection
	if auto.Mechanism == "" || auto.Pinned != "" || len(auto.Mechanisms) != len(node.Mechanisms) {
		t.Fatalf("before: %+v", auto)
	}
	idle := auto.Mechanisms[4]
	if idle.Mechanism != node.MechanismIdle || idle.Can != node.Yes {
		t.Skipf("this kernel has no cpu.idle: %s", idle.Why)
	}
	then := time.Now()
	if q := s.qos("set", "weight"); q.Selection.Mechanism != node.MechanismWeight || q.Selection.Pinned != node.MechanismWeight || !q.Selection.ByHand {
		t.Errorf("set weight: %+v", q.Selection)
	}
	t.Logf("the pin was in effect after %v", time.Since(then).Round(time.Millisecond))
	if w := s.weight(batch); w.Idle {
		t.Errorf("the weight of BE is %v", w)
	}
	if q := s.qos("set", "cpu.idle"); q.Selection.Mechanism != node.MechanismIdle || !q.Selection.ByHand || !s.weight(batch).Idle {
		t.Errorf("unload: %+v, weight %v", q.Selection, s.weight(batch))
	}
	if took := time.Since(then); took > 30*time.Second {
		t.Errorf("two pins took %v, as if they had waited for the period", took)
	}
	for _, r := range auto.Mechanisms {
		if r.Can != node.Yes {
			if said := s.runRefused("set", string(r.Mechanism)); !strings.Contains(said, "this node does not support "+string(r.Mechanism)+": "+r.Why) {
				t.Errorf("set %s: %s", r.Mechanism, said)
			}
		}
	}
	q := s.qos("set", "weight")
	since := q.Selection.Since
	d.stop()
	d = s.tenond()
	if q := s.qos("show"); q.Selection.Mechanism != node.MechanismWeight || !q.Selection.ByHand || !q.Selection.Since.Equal(since) || s.weight(batch).Idle {
		t.Errorf("after a restart: %+v, want since %v; weight %v", q.Selection, since, s.weight(batch))
	}
	if err := d.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.end
	d = s.tenond()
	if q := s.qos("show"); q.Selection.Mechanism != node.MechanismWeight || !q.Selection.ByHand || s.weight(batch).Idle {
		t.Errorf("after a kill: %+v; weight %v", q.Selection, s.weight(batch))
	}
	if q := s.choose(auto.Mechanism, "auto"); q.Selection.Mechanism != auto.Mechanism || q.Selection.Pinned != "" || q.Selection.ByHand {
		t.Errorf("auto: %+v", q.Selection)
	}
	d.stop()
	s.restore()
}
