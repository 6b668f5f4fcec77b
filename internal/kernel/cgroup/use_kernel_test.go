package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// awaitCount calls the function ask until it returns true, because the
// activity of a process appears in the counters with a delay.
func awaitCount(t *testing.T, what string, ask func() (bool, string)) {
	t.Helper()
	seen := ""
	waitUntil(t, func() (yes bool) { yes, seen = ask(); return yes }, func() string { return what + ": " + seen })
}

// runIn starts a shell command in a group.
func runIn(t *testing.T, tree *Tree, path, command string) {
	t.Helper()
	// The shell first waits for a line, so that the command runs when the shell
	// is in the group.
	cmd := exec.Command("sh", "-c", "read go; "+command+"; exec sleep 60")
	begin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot start a shell: %v", err)
	}
	t.Cleanup(func() { stop(cmd) })
	if err := tree.Attach(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := begin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
}

func TestPeriodsOfAQuotaAreCounted(t *testing.T) {
	tree, path := kernelGroup(t)
	if err := tree.WriteCPUMax(path, CPUMax{Quota: 2 * time.Millisecond, Period: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	runIn(t, tree, path, "while :; do :; done")
	kept := tree.KeepOpen(512)
	defer kept.CloseAll()
	awaitCount(t, "a tenth of a CPU is used up", func() (bool, string) {
		u, err := kept.CPUUse(path)
		return err == nil && u.ThrottledPeriods > 2 && u.Periods >= u.ThrottledPeriods && u.Throttled > 0 && u.Usage > 0, fmt.Sprintf("%+v, %v", u, err)
	})
	used, err := kept.CPUUsage(path)
	whole, err2 := tree.CPUStat(path)
	if err := errors.Join(err, err2); err != nil || used == 0 || used > whole.Usage {
		t.Errorf("CPUUsage gives %v but CPUUse gives %v, %v", used, whole.Usage, err)
	}
}

func TestPressureOfAGroupIsCounted(t *testing.T) {
	tree, path := kernelGroup(t)
	if _, err := tree.Pressure(path, "cpu"); errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	for range 8 {
		runIn(t, tree, path, "while :; do :; done")
	}
	if err := tree.WriteCPUMax(path, CPUMax{Quota: 10 * time.Millisecond, Period: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	awaitCount(t, "eight tasks want a tenth of a CPU", func() (bool, string) {
		p, err := tree.Pressure(path, "cpu")
		return err == nil && p.Some.Total > 0, fmt.Sprintf("%+v, %v", p, err)
	})
	for _, resource := range []string{"memory", "io"} {
		if _, err := tree.Pressure(path, resource); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkReaders measures how long it takes to read each counter of a group.
// Some counters are read in every tick through open files. Others are read
// rarely, and their files are opened each time.
func BenchmarkReaders(b *testing.B) {
	plain, err := Detect("/proc")
	if err != nil {
		b.Skip(err)
	}
	path := fmt.Sprintf("tenon-test-%d-bench", os.Getpid())
	if err := plain.Make(path); err != nil {
		b.Skip(err)
	}
	defer func() {
		if err := plain.Remove(path); err != nil {
			b.Error(err)
		}
	}()
	kept := plain.KeepOpen(512)
	defer kept.CloseAll()
	for name, read := range map[string]func() error{
		"CPUUse":        func() error { _, err := kept.CPUUse(path); return err },
		"CPUUsage":      func() error { _, err := kept.CPUUsage(path); return err },
		"UsagePerCPU":   func() error { _, err := kept.UsagePerCPU(path); return err },
		"MemoryCurrent": func() error { _, err := kept.MemoryCurrent(path); return err },
		"MemoryUse":     func() error { _, err := kept.MemoryUse(path); return err },
		"IOUse":         func() error { _, err := kept.IOUse(path); return err },
		"Pressure":      func() error { _, err := kept.Pressure(path, "memory"); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := read(); err != nil {
					b.Skip(err)
				}
			}
		})
	}
}
