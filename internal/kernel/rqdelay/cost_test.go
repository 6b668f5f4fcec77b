package rqdelay

import (
	"encoding/csv"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/stat"
)

const (
	// costDirVar is an environment variable. It names the folder for the raw
	// data of BenchmarkHookCost.
	costDirVar = "TENON_HOOK_COST_DIR"
	// costObjectVar is an environment variable. It names an object file of
	// tracing programs with which to compare.
	costObjectVar = "TENON_HOOK_COST_OBJECT"
	// costRounds is the number of round trips of one run: about 0.3 s.
	costRounds = 150_000
)

// BenchmarkHookCost measures what the program costs per context switch, in CPU
// time of the process that switches. Time for which other processes or the
// hypervisor have the CPU does not count. Each iteration is a block that runs
// all modes once, in random order:
//
//	go test -run '^$' -bench HookCost -benchtime 60x ./internal/kernel/rqdelay
func BenchmarkHookCost(b *testing.B) {
	s := newStage(b)
	modes := costModes(s)
	pinger := startPingpong(s)
	names := slices.Sorted(maps.Keys(modes))
	samples := map[string]stat.Sample{}
	for _, name := range names {
		samples[name] = stat.Sample{}
	}
	rows := [][]string{{"block", "position", "mode", "rounds", "ns", "cpu_ns", "switches"}}
	rng := rand.New(rand.NewPCG(7, 7))
	for block := range b.N {
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for position, name := range names {
			stop := modes[name]()
			pinger.run(costRounds / 10) // warm-up
			v := pinger.run(costRounds)
			stop()
			samples[name][block] = v.cpuNsPerSwitch()
			row := []string{strconv.Itoa(block), strconv.Itoa(position), name}
			for _, n := range []int64{costRounds, v.ns, v.cpuNs, v.switches} {
				row = append(row, strconv.FormatInt(n, 10))
			}
			rows = append(rows, row)
		}
	}
	table := costTable(samples)
	b.Logf("%d blocks\n%s", b.N, table)
	if dir := os.Getenv(costDirVar); dir != "" {
		keep(b, dir, rows, table)
	}
}

// costTable compares each mode with the mode off, block by block.
func costTable(samples map[string]stat.Sample) string {
	var table strings.Builder
	fmt.Fprintf(&table, "%-10s %10s   %s\n", "mode", "ns/switch", "more than off (95 %)")
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		d := stat.Difference(samples[name], samples["off"], paired.Rule{})
		fmt.Fprintf(&table, "%-10s %10.1f %+8.1f (%+.1f to %+.1f)\n", name, stat.Median(samples[name]), d.Value, d.Low, d.High)
	}
	return table.String()
}

// BenchmarkRead reads the counters with as many LS slots as a busy node has.
func BenchmarkRead(b *testing.B) {
	s := newStage(b)
	p := s.open(Alarm{})
	for i := range 100 {
		s.track(p, First+Slot(i), uint64(1<<40+i), LS) // ids without a cgroup
	}
	b.ReportAllocs()
	var r Reading
	for b.Loop() {
		if err := p.ReadInto(&r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen loads the program, which includes reading the kernel's types.
func BenchmarkOpen(b *testing.B) {
	s := newStage(b)
	s.open(Alarm{}) // skips the benchmark if the program cannot be loaded
	b.ReportAllocs()
	for b.Loop() {
		p, err := Open(Options{CgroupVersion: s.CgroupVersion()})
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func keep(b *testing.B, dir string, rows [][]string, table string) {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "runs.csv"))
	if err != nil {
		b.Fatal(err)
	}
	if err := csv.NewWriter(f).WriteAll(rows); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "table.txt"), []byte(table), 0o644); err != nil {
		b.Fatal(err)
	}
}

// A costMode attaches a program to context switches. It returns a function that
// detaches the program.
type costMode func() (stop func())

// pingpongGroup is the cgroup of the process that switches.
const pingpongGroup = "pingpong"

// costModes are the modes to compare. Two have no program, to show the noise,
// and one has an empty program. The others have the probe, and the switching
// process is in no slot, in a BE slot or in an LS slot.
func costModes(s stage) map[string]costMode {
	s.Helper()
	_, pingID := s.Group(pingpongGroup)
	_, otherID := s.Group("other")
	p := s.open(Alarm{Wait: time.Second, Waits: 1, Window: time.Second, Gap: time.Second})
	nothing := func() func() { return func() {} }
	probing := func(class Class) costMode {
		return func() func() {
			if class != Other {
				s.track(p, beSlot, pingID, class)
			}
			s.track(p, lsSlot, otherID, LS)
			return func() {
				for _, id := range []uint64{pingID, otherID} {
					if err := p.Forget(id); err != nil {
						s.Fatal(err)
					}
				}
			}
		}
	}
	modes := map[string]costMode{
		"off": nothing, "off-again": nothing, "empty": attaching(s, emptyProgram(s)),
		"untracked": probing(Other), "be": probing(BE), "ls": probing(LS),
	}
	if file := os.Getenv(costObjectVar); file != "" {
		c, err := ebpf.LoadCollection(file)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(c.Close)
		modes["object"] = attaching(s, slices.Collect(maps.Values(c.Programs))...)
	}
	return modes
}

func attaching(s stage, programs ...*ebpf.Program) costMode {
	return func() func() {
		var hooks []link.Link
		for _, program := range programs {
			hook, err := link.AttachTracing(link.TracingOptions{Program: program, AttachType: ebpf.AttachTraceRawTp})
			if err != nil {
				s.Fatal(err)
			}
			hooks = append(hooks, hook)
		}
		return func() {
			for _, hook := range hooks {
				if err := hook.Close(); err != nil {
					s.Fatal(err)
				}
			}
		}
	}
}

// emptyProgram is a program that does nothing. It shows what any program costs.
func emptyProgram(s stage) *ebpf.Program {
	s.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		skipLacking(s, err)
	}
	s.Cleanup(func() { _ = p.Close() })
	return p
}
