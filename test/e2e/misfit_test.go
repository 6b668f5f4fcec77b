package e2e

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
)

// lockstep runs 16 threads that wait for each other after each step, as in a
// numeric program. A thread that has finished its step spins until all others
// have finished theirs.
func lockstep() {
	const threads = 16
	runtime.GOMAXPROCS(threads)
	var arrived, step atomic.Int64
	for range threads {
		go func() {
			runtime.LockOSThread()
			for {
				now := step.Load()
				for n := 0; n < 100_000; n++ { // the work of a step
					_ = n
				}
				if arrived.Add(1) == threads {
					arrived.Store(0)
					step.Add(1)
					continue
				}
				for step.Load() == now {
				}
			}
		}()
	}
	select {}
}

// TestLimitsThatDoNotFitAreNamed runs an encoder and a program of 16 threads in
// lockstep, both with a quota, and a service that stays within its limit. The
// quota is so small that it throttles even if the machine is busy with other
// work. The window in this test is short. The scenarios of the policies test
// the real window. On cgroup v1, the counters of BE work may be ten seconds
// old.
func TestLimitsThatDoNotFitAreNamed(t *testing.T) {
	inTurn(t)
	tree := needRoot(t)
	if runtime.NumCPU() < 2 {
		t.Skip("with one CPU, the threads of a limit of one CPU have as many CPUs as it has")
	}
	needPrograms(t, "ffmpeg")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := plantSite(t, generous)
	s.run("services/encode", "ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=30", "-c:v", "libx264", "-threads", "0", "-f", "null", "-")
	s.run("batch/lockstep", "env", "TENON_TEST_ROLE=lockstep", self)
	quota := cgroup.CPUMax{Quota: 30 * time.Millisecond, Period: 100 * time.Millisecond}
	for _, group := range []string{"services/encode", "batch/lockstep", service} {
		if err := tree.WriteCPUMax(string(s.path(group)), quota); err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.Open(host.Options{JournalDir: s.state, Resident: true})
	if err != nil {
		t.Fatal(err)
	}
	for id, group := range map[node.WorkloadID]string{"encode": "services/encode", "lockstep": "batch/lockstep", "web": service} {
		w := node.Workload{ID: id, Class: node.LS, Cgroup: s.path(group), ContentionRoot: s.path("services")}
		if id == "lockstep" {
			w.Class, w.ContentionRoot = node.BE, s.path(batch)
		}
		h.Manage(w)
	}
	a := loop.Agent{Host: h, Config: policy.Config{Misfit: misfit.Config{After: 2 * time.Second}}}
	var found map[node.WorkloadID]*misfit.Misfit
	var last node.Snapshot
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(500 * time.Millisecond) {
		turn, err := a.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found, last = turn.Misfits, turn.Snapshot
		if a, b := found["encode"], found["lockstep"]; a != nil && b != nil && a.Kind == misfit.Threads && b.Kind == misfit.Threads {
			break
		}
	}
	for _, id := range []node.WorkloadID{"encode", "lockstep"} {
		m := found[id]
		if m == nil || m.Kind != misfit.Threads || m.Limit != 300 || m.Throttled <= 50 {
			t.Fatalf("%s: %+v; the last snapshot has %+v", id, m, last.Workloads)
		}
		t.Logf("%s: %s\n  write: %s", id, m.Text, m.Write)
	}
	if n := found["lockstep"].Threads.Or(0); n < 16 {
		t.Errorf("lockstep has %d threads, want at least 16", n)
	}
	if m := found["web"]; m != nil {
		t.Errorf("the service that sleeps is a misfit: %s", m.Text)
	}
}
