package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// spin prints how long a loop takes, in hundredths of a second of the guest's
// time.
const spin = `
	now() { sed 's/\.//; s/ .*//' /proc/uptime; }
	since=$(now); i=0
	while [ $i -lt 20000 ]; do i=$((i+1)); done
	echo $(($(now) - since))`

// TestCountedTimeIsTheGuestsOwn checks that the time in the guest does not
// depend on the host. Tests of durations rely on this.
func TestCountedTimeIsTheGuestsOwn(t *testing.T) {
	t.Parallel()
	m := countInstructions(t, machine(t))
	m.Topology = Topology{Sockets: 2, CoresPerSocket: 2, ThreadsPerCore: 1, CachesPerSocket: 2}
	check := func(t *findings, report Report) {
		var first, second int
		one, _ := report.Outcome("spin")
		two, _ := report.Outcome("spin-again")
		if _, err := fmt.Sscan(one.Output+" "+two.Output, &first, &second); err != nil {
			t.Errorf("times %q and %q: %v", one.Output, two.Output, err)
		}
		t.Logf("the same loop took %d and %d hundredths of a second, on the host's clock %.2f and %.2f s", first, second, one.Took.Seconds(), two.Took.Seconds())
		if d := first - second; first < 20 || 20*max(d, -d) > first {
			t.Errorf("the same loop took %d and %d hundredths of a second, want the same", first, second)
		}
		if o, ok := report.Outcome("sleep"); !ok || o.Took > 30*time.Second {
			t.Errorf("an idle minute took %.0f s on the host's clock, want next to nothing", o.Took.Seconds())
		}
		if o, _ := report.Outcome("shape"); words(o.Output) != "0 1 2 3 3 4" {
			t.Errorf("last-level caches, CPUs without one and with all: %q, want one a core, 3 and 4", words(o.Output))
		}
	}
	runChecked(t, m, new(Image), 3*time.Minute, check,
		Shell("settle", "sleep 20"), // what the kernel does after its start shares the clock
		Shell("spin", spin), Shell("spin-again", spin), Shell("sleep", "sleep 60"),
		Shell("shape", strings.ReplaceAll("cat CPU/cpu?/cache/index3/shared_cpu_list; echo 0 >CPU/cpu3/online; nproc; echo 1 >CPU/cpu3/online; nproc", "CPU", "/sys/devices/system/cpu")))
}
