package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/schedtrace"
)

// meansMachines are the kernels and the numbers of CPUs with which
// TestMeansByCounts runs. make soak runs all of them. TENON_TEST_MEANS selects
// some of them: "6.18/8 7.3/16".
var meansMachines = func() (all []string) {
	for _, cpus := range []int{8, 4, 16} {
		for _, series := range []string{"6.18", "6.12", "7.3", "6.1"} {
			all = append(all, fmt.Sprintf("%s/%d", series, cpus))
		}
	}
	return all
}()

// TestMeansByCounts runs a service beside batch work and daemons, with each
// means of isolation. It counts for which threads the service waits. It checks
// the load and not the counts. TENON_TEST_RAW=DIR saves the counts, and go run
// ./test/vm/isolation table DIR/means-* prints them as a table. A machine takes
// minutes, so only make soak runs this test.
func TestMeansByCounts(t *testing.T) {
	t.Parallel()
	machines := meansMachines
	if some := os.Getenv("TENON_TEST_MEANS"); some != "" {
		machines = strings.Fields(some)
	} else if !runsEverywhere() {
		needMachines(t)
		t.Skip("counts for an hour: make soak runs it; set TENON_TEST_MEANS, for example to 6.18/8")
	}
	image := withIsolation(t)
	for _, name := range machines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cpus int
			series, number, _ := strings.Cut(name, "/")
			if _, err := fmt.Sscan(number, &cpus); err != nil || cpus < 2 || cpus > 64 {
				t.Fatalf("machine %q: want KERNEL/CPUS", name)
			}
			means := "alone,default,floor,idle,idle-pods,scx"
			if series == "6.1" { // without slices of threads the floor is the default
				means = "alone,default,idle,idle-pods"
			}
			args := []string{"isolation", "means", "-late", fmt.Sprint(lateOn(cpus))}
			args = append(args, strings.Fields(os.Getenv("TENON_TEST_MEANS_ARGS"))...)
			report := runOn(t, manyCPUs(t, series, cpus), image, 40*time.Minute, Command{Name: "means", Args: append(args, means)})
			o, _ := report.Outcome("means")
			keep(t, fmt.Sprintf("means-%s-%d.jsonl", series, cpus), o.Output)
			if o.Exit != 0 {
				t.Errorf("exit %d:\n%s", o.Exit, o.Output)
			}
			judgeMeans(t, o.Output, strings.Split(means, ","))
		})
	}
}

// manyCPUs returns a machine whose cores have no siblings. Eight cores share a
// cache. A turn of a CPU has as many instructions as on a machine with four
// CPUs and turns of 10 µs.
func manyCPUs(t *testing.T, series string, cpus int) Machine {
	t.Helper()
	m := machine(t)
	m.Kernel = kernel(t, series)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: cpus, ThreadsPerCore: 1, CachesPerSocket: (cpus + 7) / 8}
	m.MiBPerNode = 1024 + 64*cpus
	return pace{shift: 0, round: time.Duration(cpus) * 2500 * time.Nanosecond}.of(t, m)
}

// lateOn returns the waiting time above which a wake-up is late. In this time a
// CPU executes 25,000 instructions, several times what the kernel needs for a
// switch.
func lateOn(cpus int) time.Duration { return time.Duration(cpus) * 25 * time.Microsecond }

// judgeMeans checks that every combination was run, and that it had the
// intended load.
func judgeMeans(t *testing.T, output string, means []string) {
	t.Helper()
	cells := map[string]int{}
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var c struct {
			Means   string
			Threads int
			schedtrace.Waits
			Service   []json.RawMessage
			Scheduler *struct{ Exit string }
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		cells[c.Means]++
		if c.Wakes < 20 || c.OtherWakes < 20 || len(c.Service) != c.Threads || (c.CPU.BE > 0) != (c.Means != "alone") {
			t.Errorf("not the load that was asked for: %s", line)
		}
		if (c.Scheduler != nil) != (c.Means == "scx") || c.Scheduler != nil && c.Scheduler.Exit != "" {
			t.Errorf("the scheduler did not run as asked for: %s", line)
		}
		if c.Means == "alone" && c.Found.BE+c.Late.BE > 0 {
			t.Errorf("without batch work the service waits for it: %s", line)
		}
	}
	for _, name := range means {
		if cells[name] == 0 || cells[name] != cells[means[0]] {
			t.Errorf("%d cells of %s, want as many of each means: %v", cells[name], name, cells)
		}
	}
}
