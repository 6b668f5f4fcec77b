package vm

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A worker is the final report of one worker of the load.
type worker struct {
	Load    string        `json:"load"`
	Rounds  int           `json:"rounds"`
	Longest time.Duration `json:"longest_ns"` // longest duration of a round
	Wrong   int           `json:"wrong"`      // number of children with another policy than their parent
	Policy  int           `json:"policy"`
}

// TestSchedulerComesAndGoes attaches and detaches the scheduler again and again
// while processes of both cgroups fork. TENON_TEST_CYCLES is the number of
// times; the default is 20. The programs are loaded only once, which takes the
// emulator some ten seconds.
func TestSchedulerComesAndGoes(t *testing.T) {
	t.Parallel()
	image := withIsolation(t)
	count := 20
	if text := os.Getenv("TENON_TEST_CYCLES"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TENON_TEST_CYCLES: %v", err)
		}
	}
	runInTurn(t, "cycles", func(t *testing.T, series string) {
		report := runOn(t, twoCores(t, series, lively), image, 4*time.Minute+time.Duration(count)*6*time.Second,
			Command{Name: "cycles", Args: []string{"isolation", "cycles", "-count", strconv.Itoa(count)}},
			Shell("complaints", complaints))
		o, _ := report.Outcome("cycles")
		var a struct {
			Attach  []time.Duration `json:"attach_ns"`
			Detach  []time.Duration `json:"detach_ns"`
			Enabled int             `json:"enabled"`
			Wrong   []string        `json:"wrong_policies"`
			Threads int             `json:"threads_checked"`
			Workers []worker        `json:"workers"`
		}
		readResult(t, o, &a)
		keep(t, "cycles-"+series+".json", o.Output)
		if len(a.Detach) != count || a.Enabled != count {
			t.Errorf("%d cycles of %d, the kernel counts %d", len(a.Detach), count, a.Enabled)
		}
		var longest time.Duration
		for _, d := range a.Detach {
			longest = max(longest, d)
		}
		t.Logf("%d threads looked at; longest detach %v", a.Threads, longest)
		if longest > 200*time.Millisecond {
			t.Errorf("unloading took %v, want at most 0.2 s", longest)
		}
		if len(a.Wrong) > 0 || a.Threads == 0 {
			t.Errorf("of %d threads, %d have the wrong policy: %s", a.Threads, len(a.Wrong), strings.Join(a.Wrong, "; "))
		}
		checkWorkers(t, a.Workers, map[string]int{"storm": 6, "be": 1, "ls": 1}, 2*time.Second)
		checkComplaints(t, report)
	})
}

// TestSaturatedByLS keeps all CPUs busy with LS for a minute of the guest's
// time, twice as long as the kernel lets a thread of sched_ext wait.
func TestSaturatedByLS(t *testing.T) {
	t.Parallel()
	image := withIsolation(t)
	runInTurn(t, "saturated", func(t *testing.T, series string) {
		m := twoCores(t, series, slow)
		m.KernelArgs = append(m.KernelArgs, "nowatchdog")
		report := runOn(t, m, image, 10*time.Minute,
			Command{Name: "saturate", Args: []string{"isolation", "saturate", "-for", "60s"}}, Shell("complaints", complaints))
		o, _ := report.Outcome("saturate")
		var s struct {
			Exit     string        `json:"exit"`
			Spills   int           `json:"spills"`
			Returned int           `json:"returned"`
			Longest  time.Duration `json:"longest_wait_ns"`
			LS       []worker      `json:"ls"`
			BE       []worker      `json:"be"`
		}
		readResult(t, o, &s)
		keep(t, "saturate-"+series+".json", o.Output)
		t.Logf("%d spills, %d of them returned, longest wait %v", s.Spills, s.Returned, s.Longest)
		if s.Exit != "" {
			t.Errorf("the scheduler has ended: %s", s.Exit)
		}
		if s.Spills == 0 && series != "7.3" { // 7.3 has a deadline server, which runs starved threads
			t.Error("no thread waited so long that it was spilled: LS has not kept the CPUs busy")
		}
		// Once per second, the scheduler reports threads that have waited
		// for 8 s.
		if s.Longest > 15*time.Second {
			t.Errorf("a thread waited for %v before it was spilled, want at most 15 s", s.Longest)
		}
		// The longest pause of a thread includes a wait of 8 s. After the
		// wait, the thread is in the fair class, with the share of an idle
		// cgroup. Four threads may have to divide that share on one CPU.
		checkWorkers(t, s.BE, map[string]int{"be": 4}, 30*time.Second)
		if len(s.LS) != 4 {
			t.Errorf("%d workers of LS came to their end, want 4", len(s.LS))
		}
		checkComplaints(t, report)
	})
}

// complaints prints lines of the kernel's log that report a stall or an
// ejection.
const complaints = "dmesg | grep -E 'sched_ext: .*(error|stall)|BUG:|WARNING:|hung task|rcu.*stall|soft lockup' || true"

func checkComplaints(t *testing.T, report Report) {
	t.Helper()
	if o, ok := report.Outcome("complaints"); !ok || strings.TrimSpace(o.Output) != "" {
		t.Errorf("the kernel complains:\n%s", o.Output)
	}
}

// readResult parses the output of a successful command, which is one line of
// JSON.
func readResult(t *testing.T, o Outcome, to any) {
	t.Helper()
	for line := range strings.Lines(o.Output) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), to); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
	if o.Exit != 0 {
		t.Errorf("%s: exit %d:\n%s", o.Name, o.Exit, o.Output)
	}
}

// checkWorkers checks that all workers have ended, that no worker was stopped for
// longer than a limit (stall), and that all children had the expected policy.
func checkWorkers(t *testing.T, workers []worker, want map[string]int, stall time.Duration) {
	t.Helper()
	got := map[string]int{}
	for _, w := range workers {
		got[w.Load]++
		if w.Load != "ls" && (w.Rounds == 0 || w.Longest > stall || w.Wrong > 0) {
			t.Errorf("worker %+v: want rounds of at most %v each, and no child with another policy", w, stall)
		}
	}
	for load, n := range want {
		if got[load] != n {
			t.Errorf("%d workers of %s came to their end, want %d", got[load], load, n)
		}
	}
}
