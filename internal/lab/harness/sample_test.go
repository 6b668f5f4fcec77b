package harness

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// steadyReadings returns one reading per second on 4 CPUs. LS uses 1 CPU, BE 2
// CPUs, other work 0.5 CPUs, and steal is 0.1 CPUs.
func steadyReadings(seconds int) []Reading {
	var course []Reading
	for i := range seconds + 1 {
		r := Reading{At: time.Unix(int64(100+i), 0), Limit: 2}
		s := float64(i)
		r.Count = [numCounters]float64{LSUsage: s, BEUsage: 2 * s, Idle: 0.4 * s, Steal: 0.1 * s, RunDelay: 1e-3 * s, Timeslices: 1000 * s, Stalled: 0.25 * s}
		course = append(course, r)
	}
	return course
}

func TestUseIsDividedByClass(t *testing.T) {
	course := steadyReadings(10)
	from, to := course[0].At.Add(1500*time.Millisecond), course[0].At.Add(8700*time.Millisecond)
	u := Between(ReadingAt(course, from), ReadingAt(course, to), 4)
	if !near(u.Wall, 7.2) || !near(u.LS, 1) || !near(u.BE, 2) || !near(u.other, 0.5) || !near(u.Busy, 3.5) || !near(u.StealRatio, 0.025) {
		t.Errorf("%+v", u)
	}
	if !near(u.Count[Timeslices], 7200) || !near(u.Count[RunDelay], 7.2e-3) {
		t.Errorf("%v timeslices, %v s of run-queue delay", u.Count[Timeslices], u.Count[RunDelay])
	}
}

func TestBusyIsNeverLessThanTheGroupsUsed(t *testing.T) {
	a, b := Reading{At: time.Unix(0, 0)}, Reading{At: time.Unix(1, 0)}
	b.Count[LSUsage], b.Count[Idle] = 0.5, 0.9 // the idle counter has coarse steps
	if u := Between(a, b, 1); !near(u.Busy, 0.5) || u.other != 0 {
		t.Errorf("%+v", u)
	}
}

func TestReadingOutsideTheCourseIsItsEnd(t *testing.T) {
	course := steadyReadings(2)
	if got := ReadingAt(course, time.Unix(0, 0)); got != course[0] {
		t.Errorf("before: %+v", got)
	}
	if got := ReadingAt(course, time.Unix(1e6, 0)); got != course[2] {
		t.Errorf("after: %+v", got)
	}
	if got := ReadingAt(nil, time.Unix(5, 0)); got.Count != [numCounters]float64{} {
		t.Errorf("no course: %+v", got)
	}
}

func TestSeriesCoversTheMeasuredPart(t *testing.T) {
	course := steadyReadings(10)
	s := samples(course, course[3].At, course[6].At, 4)
	if len(s) != 5 { // 2–3, 3–4, 4–5, 5–6, 6–7; samples at both ends count
		t.Fatalf("%d samples: %+v", len(s), s)
	}
	for _, p := range s {
		if !near(p.LS, 1) || !near(p.BE, 2) || !near(p.Other, 0.5) || p.Limit != 2 {
			t.Errorf("%+v", p)
		}
	}
}

// TestThreadsThatEndAndWorkersThatStartAreCounted uses a service that ends some
// threads and processes, and starts others. The sampler must not fail, and must
// not lose the counters of the ended ones.
func TestThreadsThatEndAndWorkersThatStartAreCounted(t *testing.T) {
	fs := proc.FS{Proc: t.TempDir()}
	write := func(text string, path ...string) {
		name := filepath.Join(append([]string{fs.Proc}, path...)...)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	thread := func(pid, tid int, run, delay time.Duration, slices int) {
		write(fmt.Sprintf("%d %d %d\n", run, delay, slices), strconv.Itoa(pid), "task", strconv.Itoa(tid), "schedstat")
	}
	write("cpu 1 0 0 1 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\n", "stat")
	pids := []int{10, 11}
	s := &Sampler{
		FS: fs, Recording: Recording{NoPSI: true}, LSProcesses: func() ([]int, error) { return pids, nil },
		BatchUsed: func() (time.Duration, error) { return 0, nil },
	}
	read := func(when string, used, delay, slices float64) {
		t.Helper()
		r, err := s.Reading()
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if !near(r.Count[LSUsage], used) || !near(r.Count[RunDelay], delay) || !near(r.Count[Timeslices], slices) {
			t.Errorf("%s: used %v s, waited %v s, %v timeslices; want %v, %v, %v", when, r.Count[LSUsage], r.Count[RunDelay], r.Count[Timeslices], used, delay, slices)
		}
	}
	thread(10, 10, time.Second, 100*time.Millisecond, 10)
	thread(10, 12, 2*time.Second, 200*time.Millisecond, 20) // process 11 ended after it had been listed
	read("at first", 3, 0.3, 30)

	if err := os.RemoveAll(filepath.Join(fs.Proc, "10", "task", "12")); err != nil {
		t.Fatal(err)
	}
	thread(10, 10, 1500*time.Millisecond, 100*time.Millisecond, 11)
	thread(13, 13, 4*time.Second, 0, 1)
	pids = []int{10, 13}
	read("after a thread has ended and a worker has started", 7.5, 0.3, 32)

	pids = []int{13}
	read("while the list omits a process", 7.5, 0.3, 32)
	thread(10, 10, time.Millisecond, 0, 1) // less than before, so it is another thread
	pids = []int{10, 13}
	read("after the kernel gave an ID away again", 7.501, 0.3, 33)
}
