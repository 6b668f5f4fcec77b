package health

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// TestAKnobThatFailsOnceIsNotRefused plays ticks a second apart. Each shows the
// knobs that must count as refused after it.
func TestAKnobThatFailsOnceIsNotRefused(t *testing.T) {
	gone := errors.New("gone")
	begin := time.Unix(1700000000, 0)
	outcome := func(cgroup string, err error) tick.Outcome {
		return tick.Outcome{Step: plan.Step{Knob: node.Knob{Cgroup: node.CgroupPath(cgroup), File: node.FileCPUMax}, BE: cgroup == "be"}, Err: err}
	}
	var r Refusals
	for second, c := range []struct {
		done []tick.Outcome
		want string
	}{
		{[]tick.Outcome{outcome("be", syscall.EROFS), outcome("once", syscall.EBUSY), outcome("gone", gone)}, ""},
		{[]tick.Outcome{outcome("be", syscall.EROFS), outcome("gone", gone), outcome("late", syscall.EFBIG)}, ""},
		{nil, ""}, // the next failures are new
		{[]tick.Outcome{outcome("be", syscall.EROFS), outcome("once", syscall.EBUSY), outcome("gone", gone)}, ""},
		{[]tick.Outcome{outcome("be", syscall.EROFS), outcome("gone", gone)}, ""},
		{[]tick.Outcome{outcome("be", syscall.EROFS), outcome("gone", gone)}, ""},
		{[]tick.Outcome{outcome("be", syscall.EACCES), outcome("gone", gone)}, "be"},
		{[]tick.Outcome{outcome("be", nil)}, ""},
	} {
		of := tick.Tick{Begun: begin.Add(time.Duration(second) * time.Second), Done: c.done}
		of.Snapshot.At = of.Begun
		var got []string
		for _, refused := range r.Observe(of, func(err error) bool { return errors.Is(err, gone) }) {
			got = append(got, string(refused.Knob.Cgroup))
			if !refused.BE || !errors.Is(refused.Err, syscall.EACCES) || !refused.Since.Equal(begin.Add(3*time.Second)) {
				t.Errorf("second %d: %+v", second, refused)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("second %d: %v, want %q", second, got, c.want)
		}
	}
}

// TestABlindTickEndsNoRefusal checks that a refusal lasts while the node cannot be
// read.
func TestABlindTickEndsNoRefusal(t *testing.T) {
	var r Refusals
	at := time.Unix(1700000000, 0)
	of := tick.Tick{Begun: at, Done: []tick.Outcome{{Err: syscall.EROFS}}}
	of.Snapshot.At = at
	r.Observe(of, func(error) bool { return false })
	got := r.Observe(tick.Tick{Begun: at.Add(time.Minute)}, func(error) bool { return false })
	if text := TextOf(got); len(got) != 1 || !strings.Contains(text, "read-only file system") || !strings.Contains(text, "1 knobs") {
		t.Errorf("%v: %q", got, text)
	}
}
