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

// qos runs tenon qos with -o json and returns its output.
func (s *site) qos(args ...string) control.QOS {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "tenon"), append([]string{"qos", "--state-dir", s.state, "-o", "json"}, args...)...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("tenon qos %v: %v\n%s", args, err, said.String())
	}
	var q control.QOS
	if err := json.Unmarshal(text, &q); err != nil {
		s.t.Fatalf("tenon qos %v: %v\n%s", args, err, text)
	}
	return q
}

// choose runs tenon qos and returns the output once it is in effect. In an
// emulator the kernel needs longer to verify a scheduler than tenon waits.
func (s *site) choose(rung node.Rung, args ...string) control.QOS {
	s.t.Helper()
	then := time.Now()
	cmd := exec.Command(filepath.Join(s.bin, "tenon"), append([]string{"qos", "--state-dir", s.state}, args...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		s.t.Logf("tenon qos %v: %v\n%s", args, err, text)
		// On a slow machine the mechanism is loaded, or the previous one
		// released, after tenon has stopped waiting: both answers are right,
		// and the mechanism must still come.
		if !strings.Contains(string(text), "tenond has applied it yet") && !strings.Contains(string(text), "not in use yet") {
			s.t.FailNow()
		}
	}
	var q control.QOS
	eventually(s.t, string(rung)+" is in use", func() bool {
		q = s.qos("status")
		return q.Ladder.Rung == rung && len(q.Ladder.Falls) == 0 && (rung != node.RungSchedExt || q.Means.Scheduler != nil && q.Means.Scheduler.Running)
	})
	s.t.Logf("%s is in use after %v", rung, time.Since(then).Round(time.Millisecond))
	return q
}

// refused runs tenon qos, which must fail, and returns its error.
func (s *site) refused(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "tenon"), append([]string{"qos", "--state-dir", s.state}, args...)...)
	text, err := cmd.CombinedOutput()
	if err == nil {
		s.t.Errorf("tenon qos %v did not fail:\n%s", args, text)
	}
	return string(text)
}

// policy is the scheduling policy of the batch job.
func (s *site) policy(pid int) task.Policy {
	s.t.Helper()
	p, err := task.PolicyOf(pid)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// isolated requires that a mechanism is in use and acts on the batch job.
func (s *site) isolated(rung node.Rung, q control.QOS, job int) {
	s.t.Helper()
	if q.Ladder.Rung != rung || !q.Ladder.ByHand {
		s.t.Errorf("load --rung %s: %+v", rung, q.Ladder)
	}
	cookie, err := task.CoreCookie(job)
	if err != nil && rung == node.RungCoreSched {
		s.t.Errorf("load --rung %s: the cookie of the job: %v", rung, err)
	}
	if has := cookie != 0; has != (rung == node.RungCoreSched) {
		s.t.Errorf("with %s the job has a cookie: %v", rung, has)
	}
	if ext := s.policy(job) == task.Ext; ext != (rung == node.RungSchedExt) {
		s.t.Errorf("with %s the job is SCHED_EXT: %v", rung, ext)
	}
	if running := q.Means.Scheduler != nil && q.Means.Scheduler.Running; running != (rung == node.RungSchedExt) {
		s.t.Errorf("with %s the scheduler runs: %v", rung, running)
	}
}

// goesOn requires that the batch job gets the CPU.
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

// TestQOSIsLoadedAndUnloadedByHand uses each mechanism that this kernel
// supports, from each to the next and to cpu.idle, while the job spins.
func TestQOSIsLoadedAndUnloadedByHand(t *testing.T) {
	s := plantSite(t, strings.Replace(generous, "period: 100ms", "period: 60s", 1))
	job := s.tasks[len(s.tasks)-1]
	d := s.tenond()
	var rungs []node.Rung
	for _, r := range s.qos("status").Ladder.Rungs {
		if r.Can == node.Yes {
			rungs = append(rungs, r.Rung)
		}
		t.Logf("%s: %s: %s", r.Rung, r.Can, r.Why)
	}
	for _, rung := range rungs {
		s.isolated(rung, s.choose(rung, "load", "--rung", string(rung)), job)
		s.goesOn(job)
		s.isolated(node.RungIdle, s.qos("unload"), job)
		s.goesOn(job)
	}
	for _, rung := range rungs {
		s.isolated(rung, s.choose(rung, "load", "--rung", string(rung)), job)
	}
	for _, rung := range slices.Backward(rungs) {
		s.isolated(rung, s.choose(rung, "load", "--rung", string(rung)), job)
		s.goesOn(job)
	}
	q := s.qos("status")
	if len(q.Ladder.Falls) > 0 || len(q.Failing) > 0 {
		t.Errorf("falls %+v, failing %+v", q.Ladder.Falls, q.Failing)
	}
	d.stop()
	s.goesOn(job)
	s.restore()
	if policy := s.policy(job); policy != task.Normal {
		t.Errorf("after restore the job has policy %v", policy)
	}
}

// TestQOSIsChosenByHandAndKept pins the two mechanisms that every kernel of
// these tests has.
func TestQOSIsChosenByHandAndKept(t *testing.T) {
	// A long period: an earlier change is an effect of the pin.
	s := plantSite(t, strings.Replace(generous, "period: 100ms", "period: 60s", 1))
	d := s.tenond()
	auto := s.qos("status").Ladder
	if auto.Rung == "" || auto.Pinned != "" || len(auto.Rungs) != len(node.Rungs) {
		t.Fatalf("before: %+v", auto)
	}
	idle := auto.Rungs[4]
	if idle.Rung != node.RungIdle || idle.Can != node.Yes {
		t.Skipf("this kernel has no cpu.idle: %s", idle.Why)
	}
	then := time.Now()
	if q := s.qos("load", "--rung", "weight"); q.Ladder.Rung != node.RungWeight || q.Ladder.Pinned != node.RungWeight || !q.Ladder.ByHand {
		t.Errorf("load --rung weight: %+v", q.Ladder)
	}
	t.Logf("the pin was in effect after %v", time.Since(then).Round(time.Millisecond))
	if w := s.weight(batch); w.Idle {
		t.Errorf("the weight of BE is %v", w)
	}
	if q := s.qos("unload"); q.Ladder.Rung != node.RungIdle || !q.Ladder.ByHand || !s.weight(batch).Idle {
		t.Errorf("unload: %+v, weight %v", q.Ladder, s.weight(batch))
	}
	if took := time.Since(then); took > 30*time.Second {
		t.Errorf("two pins took %v, as if they had waited for the period", took)
	}
	for _, r := range auto.Rungs {
		if r.Can != node.Yes {
			if said := s.refused("load", "--rung", string(r.Rung)); !strings.Contains(said, "this node cannot carry "+string(r.Rung)+": "+r.Why) {
				t.Errorf("load --rung %s: %s", r.Rung, said)
			}
		}
	}
	q := s.qos("load", "--rung", "weight")
	since := q.Ladder.Since
	d.stop()
	d = s.tenond()
	if q := s.qos("status"); q.Ladder.Rung != node.RungWeight || !q.Ladder.ByHand || !q.Ladder.Since.Equal(since) || s.weight(batch).Idle {
		t.Errorf("after a restart: %+v, want since %v; weight %v", q.Ladder, since, s.weight(batch))
	}
	if err := d.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.end
	d = s.tenond()
	if q := s.qos("status"); q.Ladder.Rung != node.RungWeight || !q.Ladder.ByHand || s.weight(batch).Idle {
		t.Errorf("after a kill: %+v; weight %v", q.Ladder, s.weight(batch))
	}
	if q := s.choose(auto.Rung, "auto"); q.Ladder.Rung != auto.Rung || q.Ladder.Pinned != "" || q.Ladder.ByHand {
		t.Errorf("auto: %+v", q.Ladder)
	}
	d.stop()
	s.restore()
}
