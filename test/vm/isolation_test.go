package vm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"tenon.sh/tenon/internal/kernel/schedtrace"
)

// isolationCases are the cases that TestIsolation runs for each commit; see the
// guest program isolation. burstsInTurn are groups of cases with short and with
// long bursts, of which the commit selects one. In make soak, all cases run, and
// also cases without a bound, for comparison. If TENON_TEST_RAW is set, the
// results are saved, more cases run, and they run longer.
var (
	isolationCases    = []string{"pinned:1ms:apart,equal,idle,scx"}
	burstsInTurn      = []string{"cores:200us:scx", "cores:1ms:scx cores:10ms:scx"}
	isolationCasesAll = []string{
		"pinned:1ms:alone,apart,equal,idle,scx",
		"cores:200us:idle,scx", "cores:1ms:idle,scx", "cores:10ms:idle,scx",
	}
	isolationCasesRaw = []string{
		"pinned:1ms:alone,apart,equal,shares,idle,scx",
		"cores:200us:alone,equal,shares,idle,scx",
		"cores:1ms:alone,equal,shares,idle,scx",
		"cores:10ms:alone,equal,shares,idle,scx",
		"free:200us:alone,shares,idle,scx", "free:1ms:alone,shares,idle,scx", "free:10ms:alone,shares,idle,scx",
	}
	// These cases need a kernel with core scheduling.
	cookieCases    = []string{"pinned:1ms:cookie"}
	cookieCasesAll = []string{"pinned:1ms:cookie", "cores:200us:cookie", "cores:1ms:cookie", "cores:10ms:cookie"}
)

// An isolationCase is one case in the output of the guest program.
type isolationCase struct {
	Scene string        `json:"scene"`
	Mode  string        `json:"mode"`
	Burst time.Duration `json:"burst_ns"`
	schedtrace.Report
	LS []struct {
		Wake schedtrace.Quantiles `json:"wake"`
		Done schedtrace.Quantiles `json:"done"`
	} `json:"ls"`
	BE []struct {
		Policy int `json:"policy"`
	} `json:"be"`
	Scheduler *struct {
		Exit   string `json:"exit"`
		Counts struct{ Relief, Races int }
	} `json:"scheduler"`
}

// wake returns how long the first LS thread waited after the time at which it
// asked to be woken.
func (c isolationCase) wake() schedtrace.Quantiles { return c.LS[0].Wake }

func TestIsolation(t *testing.T) {
	oneOf(t, long, t.Name())
	t.Parallel()
	image := withIsolation(t)
	// Other tests of this package rely on schedtrace. Therefore the tests of
	// schedtrace run on each kernel whose traces it reads.
	tests := testsOf(t, image, "internal/kernel/schedtrace", "-test.run=TheKernels|SmallBuffer")
	runInTurn(t, "isolation", func(t *testing.T, series string) {
		args := []string{"isolation", "cases"}
		cases, cookies := slices.Concat(isolationCases, strings.Fields(chooseInTurn(t, 0, burstsInTurn)[0])), cookieCases
		if runsEverywhere() {
			cases, cookies = isolationCasesAll, cookieCasesAll
		}
		if os.Getenv("TENON_TEST_RAW") != "" {
			args, cases, cookies = append(args, "-for", "2s"), isolationCasesRaw, cookieCasesAll
		}
		if series == "6.12" { // the kernel with core scheduling
			cases = slices.Concat(cases, cookies)
		}
		if some := os.Getenv("TENON_TEST_ISOLATION"); some != "" { // for a closer look at one case
			cases = strings.Fields(some)
		}
		report := runOn(t, twoCores(t, series, finest), image, 20*time.Minute,
			Shell("tracefs", "mount -t tracefs tracefs /sys/kernel/tracing"), tests,
			Command{Name: "isolation", Args: append(args, cases...)})
		o, _ := report.Outcome(tests.Name)
		t.Run(tests.Name, func(t *testing.T) { judge(t, report, o) })
		o, _ = report.Outcome("isolation")
		results := isolationOf(t, o, cases)
		table := isolationTable(results)
		t.Log("\n" + table)
		keep(t, "isolation-"+series+".jsonl", o.Output)
		keep(t, "isolation-"+series+".txt", table)
		if o.Exit != 0 {
			t.Errorf("exit %d:\n%s", o.Exit, o.Output)
		}
		judgeIsolation(t, series, results)
	})
}

// twoCores returns the machine of the isolation tests, which has two cores with
// two threads each.
func twoCores(t *testing.T, series string, p pace) Machine {
	t.Helper()
	m := machine(t)
	m.Kernel = kernel(t, series)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
	m.MiBPerNode = 1024
	return p.of(t, m)
}

// A pace sets the speed of the CPUs of a machine that counts instructions, and
// the length of their turns. The emulator runs one CPU after the other. A turn
// is the time until the machine's next timer expires, divided by the number of
// CPUs. Without a short timer, a turn takes up to a quarter of the guest's tick,
// and delays an interrupt from one CPU to another as long. An emulated network
// without a card has such a timer: it empties its buffer at a short interval.
// The guest does not see this timer.
type pace struct {
	shift int           // one instruction takes 2^shift ns; only one CPU runs at a time
	round time.Duration // time in which each CPU runs once
}

var (
	// finest is for measuring delays of microseconds. Turns must be so short
	// that a delay is many turns long. Each of four busy CPUs executes 250
	// million instructions per second.
	finest = pace{shift: 0, round: 5 * time.Microsecond}
	lively = pace{shift: 0, round: 100 * time.Microsecond}
	// slow is for tests that take minutes of the guest's time.
	slow = pace{shift: 4, round: 1600 * time.Microsecond}
)

func (p pace) of(t *testing.T, m Machine) Machine {
	t.Helper()
	m = countInstructions(t, m)
	wrapper := filepath.Join(t.TempDir(), "qemu")
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\" -icount shift=%d,sleep=off -netdev hubport,id=net,hubid=0 "+
		"-object filter-buffer,id=beat,netdev=net,queue=rx,interval=%d\n", m.Emulator, p.shift, p.round.Microseconds())
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m.Emulator = wrapper
	return m
}

// withIsolation adds the guest program and its load to the image.
func withIsolation(t *testing.T) *Image {
	t.Helper()
	machine(t) // skip before building anything
	image := new(Image)
	load := filepath.Join(t.TempDir(), "load")
	if output, err := exec.Command("gcc", "-O2", "-Wall", "-static", "-o", load, "load/load.c", "-lm").CombinedOutput(); err != nil {
		missing(t, "compile load.c: %v: needs gcc and libc6-dev\n%s", err, output)
	}
	for guest, host := range map[string]string{"/bin/load": load, "/bin/isolation": build(t, []string{"build"}, "./test/vm/isolation")} {
		if err := image.File(guest, host); err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// name returns the name with which the case was requested.
func (c isolationCase) name() string { return fmt.Sprintf("%s %v %s", c.Scene, c.Burst, c.Mode) }

// isolationOf parses the output of the guest program. It checks that there is
// one result for each requested case, in this order, and that each has an LS
// thread.
func isolationOf(t *testing.T, o Outcome, asked []string) []isolationCase {
	t.Helper()
	var cases []isolationCase
	for line := range strings.Lines(o.Output) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var c isolationCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if len(c.LS) == 0 {
			t.Fatalf("%s: no thread of LS says what it had", c.name())
		}
		cases = append(cases, c)
	}
	want := casesOf(t, asked)
	got := make([]string, len(cases))
	for i, c := range cases {
		got[i] = c.name()
	}
	if !slices.Equal(got, want) {
		t.Fatalf("exit %d, with results of %q, want of %q:\n%s", o.Exit, got, want, o.Output)
	}
	return cases
}

// casesOf returns the names of the cases that "SCENE:BURST:MODE,MODE…" stands
// for.
func casesOf(t *testing.T, asked []string) []string {
	t.Helper()
	var names []string
	for _, text := range asked {
		parts := strings.SplitN(text, ":", 3)
		if len(parts) < 3 {
			t.Fatalf("case %q: want SCENE:BURST:MODES", text)
		}
		burst, err := time.ParseDuration(parts[1])
		if err != nil {
			t.Fatalf("case %q: %v", text, err)
		}
		for mode := range strings.SplitSeq(parts[2], ",") {
			names = append(names, isolationCase{Scene: parts[0], Mode: mode, Burst: burst}.name())
		}
	}
	return names
}

// judgeIsolation checks the cases against the promised bounds.
func judgeIsolation(t *testing.T, series string, cases []isolationCase) {
	t.Helper()
	by := map[string]isolationCase{}
	for _, c := range cases {
		name := c.name()
		by[name] = c
		if len(c.Unseen) > 0 || c.LSTime == 0 || (c.BETime == 0) != (c.Mode == "alone") || c.wake().Count < 10 {
			t.Errorf("%s: not the load that was asked for: %+v", name, c)
		}
		if c.Mode != "scx" {
			continue
		}
		if c.Scheduler == nil {
			t.Errorf("%s: it does not say what the scheduler did", name)
			continue
		}
		if c.Scheduler.Exit != "" {
			t.Errorf("%s: the scheduler has ended: %s", name, c.Scheduler.Exit)
		}
		// In a race, LS woke while the scheduler was deciding for BE, which
		// takes about ten thousand instructions. In this case the scheduler
		// stopped BE at once.
		if n := c.Scheduler.Counts; c.BEStartsBesideLS > n.Relief+n.Races {
			t.Errorf("%s: BE was started beside LS %d times, of which relief %d and races %d", name, c.BEStartsBesideLS, n.Relief, n.Races)
		}
		// In shorter bursts, the time until BE is expelled is a larger part of the burst.
		beside := 0.01
		if c.Burst < 10*time.Millisecond {
			beside = 0.06
		}
		if !(c.BesideRatio() <= beside) {
			t.Errorf("%s: BE ran beside LS for %.2f %% of its time, want at most %.0f %%", name, 100*c.BesideRatio(), 100*beside)
		}
		if c.Unexpelled > c.Bursts/50 {
			t.Errorf("%s: in %d of %d bursts BE stayed beside LS to the end, want at most one of fifty", name, c.Unexpelled, c.Bursts)
		}
		// Up to 6.18, when LS sleeps, the kernel goes idle before BE runs. That
		// takes up to 11 % of short gaps (experiment
		// 2026-11-22-ls-wakeup-beside-ext).
		least := 0.9
		if c.Burst < time.Millisecond && series != "7.3" {
			least = 0.85
		}
		if !(c.BEShare() >= least) {
			t.Errorf("%s: BE had %.0f %% of what was left to it, want at least %.0f %%", name, 100*c.BEShare(), 100*least)
		}
	}
	judgeWake(t, by, "idle", 1.2, "apart")
	// The target is 1.05. The experiment named above explains why 6.12 and 6.18
	// exceed it. This bound detects a further increase.
	judgeWake(t, by, "scx", 1.2, "idle")
	if equal, ok := by["pinned 1ms equal"]; ok && series != "7.3" {
		if alone, ok := by["pinned 1ms apart"]; ok && equal.wake().P90 < 10*alone.wake().P90 {
			t.Errorf("equal weights delay LS by %v (p90), alone %v: want ten times as much, or the bounds above mean nothing", equal.wake().P90, alone.wake().P90)
		}
	}
}

// judgeWake compares the wake-up delay of LS in two modes.
func judgeWake(t *testing.T, by map[string]isolationCase, mode string, factor float64, than string) {
	t.Helper()
	c, tried := by["pinned 1ms "+mode]
	base, compared := by["pinned 1ms "+than]
	if !tried || !compared {
		return
	}
	for name, d := range map[string][2]time.Duration{"p50": {c.wake().P50, base.wake().P50}, "p90": {c.wake().P90, base.wake().P90}} {
		// A delay is a whole number of turns. The 90th percentile of about 200
		// wake-ups varies by a few turns between runs.
		slack := finest.round
		if name == "p90" {
			slack *= 4
		}
		if d[0] > time.Duration(factor*float64(d[1]))+slack {
			t.Errorf("wake-up delay %s of LS is %v with %s and %v with %s: %.2f times as long, want at most %.2f", name, d[0], mode, d[1], than,
				float64(d[0])/float64(d[1]), factor)
		}
	}
}

// isolationTable returns a readable table. Times are in microseconds unless the
// column says otherwise.
func isolationTable(cases []isolationCase) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "scene\tburst\tmode\twake p50\tp90\tdone p50\tp90\twoken-on p50\tp90\tLS ms\tbursts\tbeside\tstarts\texpel p50\tp90\tn\tnever\tBE ms\tideal\tshare\tother ms\t")
	µs := func(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/1e3) }
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/1e6) }
	for _, c := range cases {
		ls := c.LS[0]
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.2f%%\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%.0f%%\t%s\t\n", c.Scene, c.Burst, c.Mode,
			µs(ls.Wake.P50), µs(ls.Wake.P90), µs(ls.Done.P50), µs(ls.Done.P90), µs(c.LSWake.P50), µs(c.LSWake.P90),
			ms(c.LSTime), c.Bursts, 100*c.BesideRatio(), c.BEStartsBesideLS, µs(c.Expel.P50), µs(c.Expel.P90), c.Expel.Count, c.Unexpelled,
			ms(c.BETime), ms(c.BEIdeal), 100*c.BEShare(), ms(c.OtherTime))
	}
	w.Flush()
	return b.String()
}

// keep writes a result to the directory TENON_TEST_RAW, if it is set.
func keep(t *testing.T, name, content string) {
	t.Helper()
	dir := os.Getenv("TENON_TEST_RAW")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Error(err)
	}
}
