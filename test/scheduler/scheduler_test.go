// Package scheduler tests the decisions of the BE scheduler, bpf/scheduler.h,
// outside the kernel. The simulator (sim) calls the functions of this header as
// the kernel would. The model checker (protocol) tries all interleavings of the
// protocol between the CPUs of a core. Both are C programs, because the header
// is C, and the tests compile them.
package scheduler

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

var seed = flag.Uint64("seed", 1, "seed of the simulator's random numbers")

// strict requests the long runs, and makes a skip an error.
func strict() bool { return os.Getenv("TENON_TEST_STRICT") == "1" }

// build compiles the C files of a folder and returns the program. The process
// of the test itself copies the files, because the test cache tracks only files
// that the test opens.
func build(t *testing.T, folder string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		if strict() {
			t.Fatalf("TENON_TEST_STRICT is set, and there is no C compiler: %v", err)
		}
		t.Skipf("needs a C compiler: %v", err)
	}
	root := t.TempDir()
	var sources []string
	for _, pattern := range []string{"bpf/*.h", "test/scheduler/sim/*.[ch]", "test/scheduler/protocol/*.[ch]"} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(root, strings.TrimPrefix(filepath.ToSlash(file), "../../"))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, text, 0o644); err != nil {
				t.Fatal(err)
			}
			if filepath.Base(filepath.Dir(to)) == folder && filepath.Ext(to) == ".c" {
				sources = append(sources, to)
			}
		}
	}
	program := filepath.Join(root, folder+".run")
	args := append([]string{"-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program}, sources...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", folder, err, out)
	}
	return program
}

// run returns the output of a program, and whether all checks passed.
func run(t *testing.T, program string, args ...string) (string, bool) {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	var status *exec.ExitError
	switch {
	case err == nil:
		return strings.TrimSpace(string(out)), true
	case errors.As(err, &status) && status.ExitCode() == 1:
		return strings.TrimSpace(string(out)), false
	}
	t.Fatalf("run %s %q: %v\n%s", filepath.Base(program), args, err, out)
	return "", false
}

// topologies are machines, each with its number of cores, threads per core, and
// shards.
var topologies = []struct{ name, cores, threads, shards string }{
	{"one core of two threads", "1", "2", "1"},
	{"two cores of two threads", "2", "2", "1"},
	{"four cores of two threads in two shards", "4", "2", "2"},
	{"52 cores of two threads on two nodes", "52", "2", "4"},
	{"eight cores without SMT", "8", "1", "1"},
}

// TestInvariantsHold runs every load on every topology. It checks these
// invariants of the design: I1 (where LS expels BE from its sibling CPU, BE
// stops within an interrupt or a tick, and does not start again), I2 (no task waits for 15 s), I5
// (after a pass of the reaper the bits are correct) and I8 (the times of the
// classes add up to the elapsed time). It also checks shares, quotas, cap,
// headroom, hold and relief, and that BE uses the time that it may use.
//
// It does not check the invariants about the kernel: I3 (all threads continue
// after an unload), I4 (no LS thread has the policy), I6 (no insertion into
// queues that bypass dispatch; qos_route has no such answer), I7 (the hook
// survives failed lookups).
func TestInvariantsHold(t *testing.T) {
	sim := build(t, "sim")
	events := "200000"
	if strict() {
		events = "10000000"
	}
	for _, top := range topologies {
		for _, load := range []string{"storm", "beside", "kept", "steady"} {
			for _, hz := range []string{"250", "1000"} {
				t.Run(fmt.Sprintf("%s/%s/%s Hz", top.name, load, hz), func(t *testing.T) {
					args := []string{"-cores", top.cores, "-threads", top.threads, "-shards", top.shards,
						"-load", load, "-hz", hz, "-events", events, "-seed", strconv.FormatUint(*seed, 10)}
					out, ok := run(t, sim, args...)
					t.Logf("%s\n%s", strings.Join(args, " "), out)
					if !ok {
						t.Error("an invariant is broken")
					}
				})
			}
		}
	}
}

// TestEachRuleIsNeeded switches off one rule at a time. Then the check of that
// rule must fail in one of a few runs. With the rule, these runs must pass.
func TestEachRuleIsNeeded(t *testing.T) {
	sim := build(t, "sim")
	for name, c := range map[string]struct{ rules, breaks, args string }{
		"LSX that starts kicks BE off":             {"PREEMPT_KICK", "I1", "-load storm"},
		"no BE is given to a CPU beside LSX":       {"SMT_RULE", "I1", "-load storm"},
		"BE that starts looks again":               {"RUNNING_CHECK", "I1", "-load storm"},
		"tick and reaper find BE beside LSX":       {"TICK,REAP_KICK", "I1", "-load storm -hz 1000"},
		"siblings wait after LSX":                  {"HOLD", "hold", "-load storm"},
		"LSX that stops wakes who was expelled":    {"WAKE_KICK", "conserving", "-load steady -cores 1"},
		"the reaper wakes for waiting tasks":       {"REAP_WAKE", "wake-up", "-load storm"},
		"waiting tasks go to idle CPUs":            {"SPREAD", "spread", "-load kept -cores 4"},
		"waiting tasks leave a CPU without BE":     {"STUCK", "stuck", "-load kept -cores 4"},
		"who comes to a CPU takes over its time":   {"HOME", "turn", "-load kept -cores 4"},
		"who may go nowhere else is let run":       {"BOUND", "wake-up", "-load storm -cores 8 -threads 1"},
		"the reaper repairs bits":                  {"REPAIR", "I5", "-load storm"},
		"relief for who starves":                   {"RELIEF", "I2", "-load beside"},
		"a trickle of service is starvation":       {"FED", "I2", "-load beside -cores 1 -hz 1000"},
		"relief is seldom":                         {"RELIEF_RATE", "relief", "-load storm"},
		"spill for who starves in spite of relief": {"SPILL", "I2", "-load storm"},
		"no credit for sleep":                      {"KEY", "I2", "-load steady"},
		"the CPU's queue is not always first":      {"TURN", "I2", "-load steady"},
		"even the smallest quota lets a pod run":   {"POD_MIN", "I2", "-load beside -cores 8 -threads 1"},
		"runs are paid for in advance":             {"QUOTA", "quota", "-load storm"},
		"a pod's share is its weight":              {"WEIGHT", "shares", "-load steady"},
		"no more CPUs run BE than the cap says":    {"CAP", "cap", "-load storm"},
		"idle cores are kept as headroom":          {"HEADROOM", "headroom", "-load storm"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			for try := range uint64(12) {
				args := append(strings.Fields(c.args), "-events", "1000000", "-seed", strconv.FormatUint(*seed+try, 10))
				out, ok := run(t, sim, append(args, "-break", c.rules)...)
				line, found := findViolation(out, c.breaks)
				if !found {
					if !ok {
						seen = append(seen, out)
					}
					continue
				}
				if out, ok := run(t, sim, args...); !ok {
					t.Fatalf("%s is broken with the rule too:\n%s", c.breaks, out)
				}
				t.Logf("%s -break %s: %s", strings.Join(args, " "), c.rules, line)
				return
			}
			t.Errorf("without %s the check of %s notices nothing; seen: %q", c.rules, c.breaks, seen)
		})
	}
}

// findViolation returns the first line of the output that reports a violation
// of the invariant.
func findViolation(out, invariant string) (string, bool) {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "BROKEN "+invariant+":") {
			return strings.TrimSpace(line), true
		}
	}
	return "", false
}

// TestProtocolHoldsInEveryOrder tries all interleavings. LSX is LS work that
// expels BE from the other threads of its core. Unless an interrupt (kick) is
// under way, BE must never stay beside LSX, and must never wait on an idle CPU.
// When LSX has left, a hold keeps BE away for a while. A CPU that sees that LSX
// has left must also see the hold.
func TestProtocolHoldsInEveryOrder(t *testing.T) {
	check := build(t, "protocol")
	for name, args := range map[string]string{
		"LSX starts":                         "-switches 1",
		"LSX starts and stops":               "-switches 2",
		"LSX comes three times":              "-switches 6",
		"LSX comes and goes on two siblings": "-lsx 2 -switches 2",
		"with a hold":                        "-hold 1000 -switches 4",
		"with a hold, on two siblings":       "-hold 1000 -lsx 2 -switches 2",
	} {
		t.Run(name, func(t *testing.T) {
			out, ok := run(t, check, strings.Fields(args)...)
			t.Logf("%s: %s", args, out)
			if !ok {
				t.Error("the protocol is broken")
			}
		})
	}
}

// TestProtocolCheckCanFail removes a step of the protocol, or the memory order.
// The check must then report the expected fault.
func TestProtocolCheckCanFail(t *testing.T) {
	check := build(t, "protocol")
	for name, c := range map[string]struct{ args, breaks string }{
		"plain stores, LSX starts":       {"-memory tso -switches 1", "expel"},
		"plain stores, LSX stops":        {"-memory tso -switches 2", "wake-up"},
		"LSX that starts does not kick":  {"-break PREEMPT_KICK -switches 1", "expel"},
		"BE that starts does not look":   {"-break RUNNING_CHECK -switches 1", "expel"},
		"LSX that stops does not kick":   {"-break WAKE_KICK -switches 2", "wake-up"},
		"who is refused looks only once": {"-break REREAD -switches 2", "wake-up"},
		"nobody looks at the hold":       {"-break HOLD -hold 1000 -switches 2", "hold"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := run(t, check, strings.Fields(c.args)...)
			if _, found := findViolation(out, c.breaks); !found {
				t.Fatalf("%s: not found: %s\n%s", c.args, c.breaks, out)
			}
			t.Log(out)
		})
	}
}

// TestObjectsOrderTheirBits checks the compiled scheduler. The protocol needs
// full memory order. In BPF, only the atomic operations that return the old
// value have it.
func TestObjectsOrderTheirBits(t *testing.T) {
	objects, err := filepath.Glob("../../internal/kernel/scx/*_bpfel.o")
	if err != nil || len(objects) == 0 {
		t.Fatalf("find the compiled scheduler: %v, %v", objects, err)
	}
	for _, object := range objects {
		spec, err := ebpf.LoadCollectionSpec(object)
		if err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		var ordered int
		for name, program := range spec.Programs {
			for i, ins := range program.Instructions {
				if ins.OpCode.Class() != asm.StXClass || ins.OpCode.Mode() != asm.AtomicMode {
					continue
				}
				switch ins.OpCode.AtomicOp() {
				case asm.AndAtomic, asm.OrAtomic:
					t.Errorf("%s: %s: instruction %d (%v) changes bits without memory order", object, name, i, ins)
				case asm.FetchAnd, asm.FetchOr:
					ordered++
				}
			}
		}
		if ordered == 0 {
			t.Errorf("%s: no ordered change of bits was found", object)
		}
	}
}
