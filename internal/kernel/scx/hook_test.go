package scx

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// hookAlone attaches only the program of sched_switch, without the scheduler. A
// kernel without sched_ext can run it, because the program then interrupts no
// CPU.
func hookAlone(t testing.TB) *Scheduler {
	t.Helper()
	s := hookOnly(t)
	t.Cleanup(attachHook(t, s))
	if err := switchEvery(topology(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

// hookOnly loads the program of sched_switch without attaching it.
func hookOnly(t testing.TB) *Scheduler {
	t.Helper()
	return hookFor(t, topology(t))
}

// hookFor does the same as hookOnly, for a machine with the given CPUs.
func hookFor(t testing.TB, cpus []CPU) *Scheduler {
	t.Helper()
	l, err := newLayout(cpus)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := V613.spec()
	if err != nil {
		t.Fatal(err)
	}
	if err := fit(spec, Options{CgroupVersion: 1}, l); err != nil {
		t.Fatal(err)
	}
	for name, p := range spec.Programs {
		if p.Type == ebpf.StructOps {
			delete(spec.Programs, name)
		}
	}
	delete(spec.Maps, scheduler613MapTenon)
	s := &Scheduler{variant: V613, layout: l, generation: 1, known: map[uint64]scheduler613ScxGroup{}}
	s.kernel, err = ebpf.NewCollection(spec)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("needs root, BTF and tracing programs: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kernel.Close)
	if s.view, err = newView(s.kernel, l); err != nil {
		t.Fatal(err)
	}
	return s
}

// attachHook attaches the program and returns a function that detaches it.
func attachHook(t testing.TB, s *Scheduler) (detach func()) {
	t.Helper()
	hook, err := link.AttachTracing(link.TracingOptions{
		Program: s.kernel.Programs[scheduler613ProgTenonSwitched], AttachType: ebpf.AttachTraceRawTp,
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := hook.Close(); err != nil {
			t.Error(err)
		}
	}
}

// switches returns how many context switches the program has counted.
func switches(t testing.TB, s *Scheduler) (n uint64) {
	t.Helper()
	for _, c := range topology(t) {
		var cpu scheduler613ScxCpu
		if err := element(s.view.cpus, int(c.ID), &cpu); err != nil {
			t.Fatal(err)
		}
		if cpu.Counts[scheduler613ScxCountSCX_SWITCHES] == 0 {
			t.Errorf("CPU %d has not switched", c.ID)
		}
		n += cpu.Counts[scheduler613ScxCountSCX_SWITCHES]
	}
	return n
}

func TestHookAloneSeesEveryCPU(t *testing.T) {
	s := hookAlone(t)
	before := switches(t, s)
	time.Sleep(100 * time.Millisecond)
	if after := switches(t, s); after <= before {
		t.Errorf("%d switches, and later %d", before, after)
	}
}

// TestHookIsCheap checks how long the program runs per context switch, according
// to the kernel's statistics, which include their own cost. A busy host may stop
// a virtual machine at any moment, so only the cheapest of ten parts counts.
func TestHookIsCheap(t *testing.T) {
	s := hookAlone(t)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Skipf("needs BPF statistics: %v", err)
	}
	defer stats.Close()
	cheapest := time.Hour
	var before ebpf.ProgramStats
	for range 10 {
		time.Sleep(200 * time.Millisecond)
		now, err := s.kernel.Programs[scheduler613ProgTenonSwitched].Stats()
		if err != nil {
			t.Fatal(err)
		}
		if n := now.RunCount - before.RunCount; n > 0 {
			each := (now.Runtime - before.Runtime) / time.Duration(n)
			t.Logf("%v for each of %d switches", each, n)
			cheapest = min(cheapest, each)
		}
		before = *now
	}
	if cheapest > 20*time.Microsecond { // a program that looks at every CPU
		t.Errorf("%v for a switch", cheapest)
	}
}
