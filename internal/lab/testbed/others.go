package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// Others watches for so long what other programs do, on a machine on which no program of
// the lab runs but the lab itself. A child that ended meanwhile counts for its parent. A
// busy machine is no error.
func (s *Site) Others(ctx context.Context, watch time.Duration) (report.Others, error) {
	before, err := lookAround(s.FS)
	if err == nil {
		err = Pause(ctx, watch)
	}
	if err != nil {
		return report.Others{}, err
	}
	after, err := lookAround(s.FS)
	if err != nil {
		return report.Others{}, err
	}
	return othersBetween(before, after, s.Place.Tested, os.Getpid())
}

// A look is what /proc says at one time.
type look struct {
	at        time.Time
	stat      proc.Stat
	waited    unit.Stall
	processes map[int]proc.PIDStat
}

func lookAround(fs proc.FS) (look, error) {
	l := look{at: time.Now(), processes: map[int]proc.PIDStat{}}
	var err error
	if l.stat, err = fs.Stat(); err != nil {
		return l, fmt.Errorf("look who uses the machine: %w", err)
	}
	pids, err := fs.PIDs()
	if err != nil {
		return l, fmt.Errorf("look who uses the machine: %w", err)
	}
	for _, pid := range pids {
		p, err := fs.PIDStat(pid)
		switch {
		case errors.Is(err, proc.ErrGone):
		case err != nil:
			return l, fmt.Errorf("look who uses the machine: %w", err)
		default:
			l.processes[pid] = p
		}
	}
	if p, err := fs.Pressure("cpu"); err == nil { // a kernel may be without it
		l.waited = p.Some
	}
	return l, nil
}

// othersBetween returns what all processes but one (self) did between two looks.
func othersBetween(a, b look, tested unit.CPUSet, self int) (o report.Others, err error) {
	o.Watched = b.at.Sub(a.at)
	elapsed := o.Watched.Seconds()
	if elapsed <= 0 {
		return o, errors.New("look who uses the machine: no time has passed")
	}
	var used, testedUsed, steal float64
	stealKnown := true
	for cpu, y := range b.stat.PerCPU {
		x, known := a.stat.PerCPU[cpu]
		if !known {
			continue // it went online meanwhile
		}
		o.CPUs++
		busy := max((y.Busy()-x.Busy()).Seconds()/elapsed, 0)
		used += busy
		if !tested.Has(cpu) {
			continue
		}
		testedUsed += busy
		steal += max((y.Steal-x.Steal).Seconds()/elapsed, 0) / float64(tested.Len())
		name := fmt.Sprintf("cpu%d steal", cpu)
		stealKnown = stealKnown && !a.stat.Unread.Lack(name) && !b.stat.Unread.Lack(name)
	}
	if o.CPUs == 0 {
		return o, errors.New("look who uses the machine: /proc/stat has no times of a CPU")
	}
	programs := map[string]float64{}
	for pid, time := range usedBetween(a.processes, b.processes) {
		if cpus := time.Seconds() / elapsed; pid == self {
			used = max(used-cpus, 0) // the lab runs on CPUs that are not tested
		} else if cpus > 0 {
			programs[printable(b.processes[pid].Comm)] += cpus
		}
	}
	waited := min(max((b.waited.Total-a.waited.Total).Seconds()/elapsed, 0), 1)
	o.Used, o.Tested, o.Programs = report.Number(used), report.Number(testedUsed), report.Largest(programs)
	o.Steal = report.Number(report.KnownOrNaN(steal, stealKnown))
	o.Waited = report.Number(report.KnownOrNaN(waited, a.waited.Known && b.waited.Known))
	return o, nil
}

// usedBetween returns the CPU time that each process used between two looks, with that
// of its children that ended meanwhile.
func usedBetween(a, b map[int]proc.PIDStat) map[int]time.Duration {
	used := map[int]time.Duration{}
	for pid, now := range b {
		was, known := a[pid]
		if !known || was.StartTime != now.StartTime {
			was = proc.PIDStat{} // it is new
		}
		used[pid] = now.UserTime + now.SystemTime - was.UserTime - was.SystemTime
		used[pid] += now.ChildUserTime + now.ChildSystemTime - was.ChildUserTime - was.ChildSystemTime
	}
	for _, was := range a { // what an ended child had used before is not of this time
		if lives(b, was) {
			continue
		}
		heir := was.PPID
		for range len(a) { // the heir of an ended parent has it
			parent, known := a[heir]
			if !known || lives(b, parent) {
				break
			}
			heir = parent.PPID
		}
		if _, known := used[heir]; known {
			used[heir] -= was.UserTime + was.SystemTime + was.ChildUserTime + was.ChildSystemTime
		}
	}
	return used
}

// lives reports whether a process is among those of a look.
func lives(all map[int]proc.PIDStat, p proc.PIDStat) bool {
	now, known := all[p.PID]
	return known && now.StartTime == p.StartTime
}

// printable returns a name without characters that a terminal could take for a command.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name)
}
