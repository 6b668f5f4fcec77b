package pi

import (
	"strings"
	"testing"
)

func TestEveryNumberOfThreadsGivesTheSameDigits(t *testing.T) {
	const want = "3.14159265358979323846264338327950288419716939937510" // OEIS A000796
	for _, threads := range []int{1, 2, 7, 100} {
		if got := (Task{Threads: threads, Digits: 50, Rounds: 2}).Compute(); got != want {
			t.Errorf("%d threads: %s", threads, got)
		}
	}
	if got := Machin(50); got != want {
		t.Errorf("Machin's formula gives %s", got)
	}
}

// TestAllDigitsAreRight compares the digits with those of an independent
// formula. It uses so many threads that each of them has few terms or none.
func TestAllDigitsAreRight(t *testing.T) {
	for _, digits := range []int{1, 2, 999, 3000} {
		threads := 0
		got := Task{Threads: 300, Digits: digits, Rounds: 1, Ready: func() { threads++ }}.Compute()
		if n := CorrectDigits(got); n != digits || len(got) != digits+2 || threads != 1 {
			t.Errorf("%d digits: %d of %d are right", digits, n, len(got)-2)
		}
	}
}

// TestALostTermIsSeen checks that a missing term is found. The published
// program loses the last term of each thread.
func TestALostTermIsSeen(t *testing.T) {
	if n := CorrectDigits("3.1415926458"); n != 7 {
		t.Errorf("%d digits of the published program are right, want 7", n)
	}
}

func TestAReportCountsThreadsBeforeTheWork(t *testing.T) {
	r, err := Task{Threads: 5, Digits: 100, Rounds: 1}.Report(func() (int, error) { return 42, nil })
	if err != nil || r.Threads != 42 || r.Right != 100 || r.First != "3.14159265" || r.Seconds <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTasksOutOfRangeAreRefused(t *testing.T) {
	for want, task := range map[string]Task{
		"0 threads: want 1 to 9000": {0, 1, 1, nil}, "0 digits: want 1 to": {1, 0, 1, nil}, "0 rounds: want 1 or more": {1, 1, 0, nil},
	} {
		if err := task.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
