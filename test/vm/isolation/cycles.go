package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
)

// An attachment is the result of attaching and detaching the scheduler several
// times. The time of the first attachment includes the loading.
type attachment struct {
	Cycles int             `json:"cycles"`
	Attach []time.Duration `json:"attach_ns"`
	Detach []time.Duration `json:"detach_ns"`
	// Enabled is the number of schedulers that the kernel enabled meanwhile, by
	// its own count.
	Enabled int `json:"enabled"`
	// WrongPolicies lists threads whose policy is not that of their load. They
	// are recorded while the scheduler is attached, and once more after the
	// last detachment.
	WrongPolicies []string          `json:"wrong_policies,omitempty"`
	Threads       int               `json:"threads_checked"`
	Workers       []json.RawMessage `json:"workers"`
	Took          time.Duration     `json:"took_ns"`
}

// cycles attaches and detaches the scheduler count times, while both cgroups
// fork in a loop and a BE hog runs.
func cycles(ctx context.Context, count int) error {
	if err := makeGroups(); err != nil {
		return err
	}
	if err := setGroups(modes["scx"]); err != nil {
		return err
	}
	forever := nanos(math.MaxInt64)
	nap := nanos(2 * time.Millisecond) // pause between two forks
	a := attachment{Cycles: count}
	var loads []*load
	for _, args := range [][]string{
		{"-g", lsGroup, "storm", "2", nap, "20000", "0", forever},
		{"-g", lsGroup, "ls", "-1", nap, "20000", "0", forever},
		{"-p", "7", "-g", beGroup, "storm", "4", nap, "20000", "0", forever},
		{"-p", "7", "-g", beGroup, "be", "-1", "20000", "0", forever},
	} {
		l, err := start(ctx, args...)
		if err != nil {
			return err
		}
		loads = append(loads, l)
	}
	begun, before := now(), enableSeq()
	err := a.cycle(count)
	a.Took, a.Enabled = now()-begun, enableSeq()-before
	a.check()
	for _, l := range loads {
		err = errors.Join(err, l.stop())
	}
	for _, l := range loads {
		lines, failed := l.wait()
		a.Workers, err = append(a.Workers, lines...), errors.Join(err, failed)
	}
	return errors.Join(err, report(a))
}

func (a *attachment) cycle(count int) error {
	s, err := loadScheduler(true, bothGroups)
	if err != nil {
		return err
	}
	for i := range count {
		begun := now()
		if i > 0 {
			if err := s.Attach(); err != nil {
				return errors.Join(err, s.Close())
			}
			a.Attach = append(a.Attach, now()-begun)
		}
		time.Sleep(20 * time.Millisecond)
		a.check()
		status, err := s.Status()
		if err == nil && !status.Running {
			err = fmt.Errorf("the scheduler has ended: %+v", status.Exit)
		}
		begun = now()
		err = errors.Join(err, s.Detach())
		a.Detach = append(a.Detach, now()-begun)
		if state := sched("state"); err == nil && state != "disabled" {
			err = fmt.Errorf("detached, and sched_ext is %s", state)
		}
		if err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return s.Close()
}

// check records threads whose policy is not that of their load.
func (a *attachment) check() {
	for group, want := range map[string]task.Policy{lsGroup: task.Normal, beGroup: task.Ext} {
		threads, err := os.ReadFile(group + "/cgroup.threads")
		if err != nil {
			a.WrongPolicies = append(a.WrongPolicies, err.Error())
		}
		for text := range strings.FieldsSeq(string(threads)) {
			var tid int
			if _, err := fmt.Sscan(text, &tid); err != nil {
				continue
			}
			attr, err := task.Attr(tid)
			switch {
			case errors.Is(err, task.ErrGone):
			case err != nil:
				a.WrongPolicies = append(a.WrongPolicies, err.Error())
			case attr.Policy != want:
				a.WrongPolicies = append(a.WrongPolicies, fmt.Sprintf("thread %d of %s is %v", tid, group, attr.Policy))
			default:
				a.Threads++
			}
		}
	}
}

// stop tells the workers of a load to end early.
func (l *load) stop() error {
	return syscall.Kill(-l.cmd.Process.Pid, syscall.SIGTERM)
}

// sched reads a file of the kernel's sched_ext, or returns "" if the file does
// not exist.
func sched(file string) string {
	text, _ := os.ReadFile("/sys/kernel/sched_ext/" + file)
	return strings.TrimSpace(string(text))
}

func enableSeq() int {
	n := 0
	_, _ = fmt.Sscan(sched("enable_seq"), &n)
	return n
}
