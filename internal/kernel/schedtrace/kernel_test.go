package schedtrace

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// recorder opens the kernel's trace. It skips the test if there is no tracefs,
// or no permission to use it.
func recorder(t *testing.T, perCPU unit.Bytes) *Recorder {
	t.Helper()
	root, err := Root()
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err) // a test does not mount tracefs on the machine of its user
	}
	if err == nil {
		var r *Recorder
		if r, err = Open(root, perCPU); err == nil {
			t.Cleanup(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
			return r
		}
	}
	if errors.Is(err, fs.ErrPermission) && os.Getuid() != 0 {
		t.Skip(err)
	}
	t.Fatal(err)
	return nil
}

// sleeper sleeps and spins by turns on one CPU. It returns its thread id, and
// when each burst began and ended.
func sleeper(t *testing.T, cpu, turns int, work time.Duration) (tid int, bursts [][2]time.Duration) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread ends together with its affinity
		tid = unix.Gettid()
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			t.Error(err)
			return
		}
		for range turns {
			time.Sleep(5 * time.Millisecond)
			begun := now()
			for now() < begun+work {
			}
			bursts = append(bursts, [2]time.Duration{begun, now()})
		}
	}()
	<-done
	return tid, bursts
}

// now returns the time on the clock of the events.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

func TestTheKernelsRecordAgreesWithWhoWasTraced(t *testing.T) {
	r := recorder(t, 8<<20)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	begun := now()
	tid, bursts := sleeper(t, 0, 10, 2*time.Millisecond)
	ended := now()
	events, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	var spun time.Duration
	for _, b := range bursts {
		spun += b[1] - b[0]
	}
	// The thread under test is the only LS thread.
	report, err := Judge(events, Rules{
		Cores: map[unit.CPU]int{0: 0}, From: begun, To: ended,
		ClassOf: func(t Thread) Class {
			if t.TID == tid {
				return LS
			}
			return Other
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events; spun %v, %+v", len(events), spun, report)
	// The time of spinning includes the time in which other threads had the
	// CPU.
	if report.LSTime > spun+10*time.Millisecond || report.LSTime < 10*time.Millisecond {
		t.Errorf("ran %v according to the trace, but spun %v according to its own clock", report.LSTime, spun)
	}
	if report.Bursts < 10 || report.LSWake.Count < 10 || report.LSWake.P50 <= 0 {
		t.Errorf("%d bursts, %d wake-ups of p50 %v; want 10 or more of each", report.Bursts, report.LSWake.Count, report.LSWake.P50)
	}
}

func TestASmallBufferMakesTheTraceVoid(t *testing.T) {
	r := recorder(t, 4<<10)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	sleeper(t, 0, 300, 0)
	if events, err := r.Stop(); !errors.Is(err, ErrVoid) {
		t.Errorf("%d events, error %v; want ErrVoid", len(events), err)
	}
}
