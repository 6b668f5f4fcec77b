package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/workers"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/model/unit"
)

// TestResizesOfASliceAreTimed measures how long a resize of a worker takes, and
// how long its encoders make no progress. It compares the longest gap between two
// frames while the worker is resized with the longest gap while its size stays. It
// checks only that the encoders go on. The figures are for docs/experiments.
func TestResizesOfASliceAreTimed(t *testing.T) {
	needPrograms(t, "ffmpeg")
	resizes, err := strconv.Atoi(os.Getenv("TENON_TEST_RESIZES"))
	if err != nil {
		t.Skip("a measurement: TENON_TEST_RESIZES is the number of resizes")
	}
	s := plantSite(t, workersConfig)
	all := s.cpus("services")
	if all.Len() != 2 {
		t.Skipf("written for 2 CPUs, this machine has %d", all.Len())
	}
	s.endPrograms()
	both := []*encoder{s.encode("batch/encode"), s.encode("batch/encode2")}
	s.before = s.dump(t)
	d := s.tenond()
	c := control.NewClient(s.state)
	size := func(cpus int) (answered, moved time.Duration) {
		begun := time.Now()
		if _, err := workers.Set(t.Context(), c, "encoders", cpus); err != nil {
			t.Fatal(err)
		}
		answered = time.Since(begun)
		for _, e := range both {
			for !e.within(cpus) {
				if time.Since(begun) > 10*time.Second {
					t.Fatalf("an encoder has not %d CPUs after 10 s", cpus)
				}
				time.Sleep(500 * time.Microsecond)
			}
		}
		return answered, time.Since(begun)
	}
	eventually(t, "the encoders encode", func() bool { return both[0].frames() > 0 && both[1].frames() > 0 })

	const hold = 400 * time.Millisecond // between two resizes
	for cpus := 1; cpus <= 2; cpus++ {
		size(cpus)
		time.Sleep(time.Second)
		watch := watchFrames(both)
		time.Sleep(time.Duration(resizes) * hold)
		t.Logf("no resize, %s: %v", cpusText(cpus), gapsOf(watch()))
	}
	var answered, moved []float64
	watch := watchFrames(both)
	for i := range resizes {
		a, m := size(1 + i%2)
		t.Logf("resize %3d to %s: answered after %6.2f ms, last thread moved after %6.2f ms", i+1, cpusText(1+i%2), ms(a), ms(m))
		answered, moved = append(answered, ms(a)), append(moved, ms(m))
		time.Sleep(hold)
	}
	times := watch()
	for i, e := range both {
		if len(times[i]) < 2 || !e.alive() {
			t.Errorf("encoder %d: %d frames seen, alive: %v", i, len(times[i]), e.alive())
		}
	}
	t.Logf("%d resizes: %v", resizes, gapsOf(times))
	t.Logf("answered: median %.1f ms, P99 %.1f ms, longest %.1f ms", stat.Quantile(answered, 0.5).Value, stat.Quantile(answered, 0.99).Value, slices.Max(answered))
	t.Logf("last thread moved: median %.1f ms, P99 %.1f ms, longest %.1f ms", stat.Quantile(moved, 0.5).Value, stat.Quantile(moved, 0.99).Value, slices.Max(moved))
	d.stop()
}

func cpusText(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// within reports whether all threads of the encoder may run on exactly so many
// CPUs. Each thread that runs or waits for a CPU must also be on one of them. A
// thread that sleeps moves when it wakes up.
func (e *encoder) within(cpus int) bool {
	e.s.t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", e.pid))
	e.s.check(err)
	for _, task := range tasks {
		status, err := os.ReadFile(filepath.Join(task, "status"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		e.s.check(err)
		_, list, _ := bytes.Cut(status, []byte("Cpus_allowed_list:"))
		list, _, _ = bytes.Cut(list, []byte("\n"))
		allowed, err := unit.ParseCPUSet(strings.TrimSpace(string(list)))
		e.s.check(err)
		if allowed.Len() != cpus {
			return false
		}
		stat, err := os.ReadFile(filepath.Join(task, "stat"))
		if err != nil {
			continue // it has ended since
		}
		const state, processor = 0, 36 // fields after the name, proc(5)
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if on, err := strconv.Atoi(fields[processor]); err != nil || fields[state] == "R" && !allowed.Has(unit.CPU(on)) {
			return false
		}
	}
	return len(tasks) > 0
}

// watchFrames records when each encoder reports a new number of frames. The
// times are exact to some milliseconds. The returned function returns them.
func watchFrames(encoders []*encoder) func() [][]time.Time {
	times := make([][]time.Time, len(encoders))
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		last := make([]int, len(encoders))
		for {
			for i, e := range encoders {
				if n := e.frames(); n > last[i] {
					last[i], times[i] = n, append(times[i], time.Now())
				}
			}
			select {
			case <-end:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() [][]time.Time {
		close(end)
		<-ended
		return times
	}
}

// gapsOf says how long the encoders made no progress.
func gapsOf(times [][]time.Time) string {
	var said []string
	for _, of := range times {
		var gaps []float64
		for i := 1; i < len(of); i++ {
			gaps = append(gaps, ms(of[i].Sub(of[i-1])))
		}
		if len(gaps) == 0 {
			said = append(said, "no frames")
			continue
		}
		said = append(said, fmt.Sprintf("%d reports, gap median %.0f ms, P99 %.0f ms, longest %.0f ms", len(gaps), stat.Quantile(gaps, 0.5).Value, stat.Quantile(gaps, 0.99).Value, slices.Max(gaps)))
	}
	return strings.Join(said, "; ")
}
