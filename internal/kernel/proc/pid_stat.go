package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// PIDStat is the state of a process or a thread (/proc/PID/stat). The times of a
// process are sums over all its threads, including threads that have ended.
type PIDStat struct {
	PID                      int
	Comm                     string // file name of the program, at most 15 bytes
	State                    byte   // R, S, D, T, Z, …
	PPID, PGRP, Session      int
	UserTime, SystemTime     time.Duration // in steps of 10 ms
	ChildUserTime            time.Duration // of children that the process has waited for
	ChildSystemTime          time.Duration
	Nice, NumThreads         int
	StartTime                time.Duration // since boot; PID and StartTime together identify a process
	Processor                unit.CPU      // the CPU that ran it last
	Policy                   int           // number of its scheduling policy, see package task
	MinorFaults, MajorFaults int64
}

// PIDStat reads /proc/PID/stat. If the process has ended, it returns ErrGone.
// As long as the parent has not waited for an ended process, PIDStat returns no
// error but the State Z.
func (fs FS) PIDStat(pid int) (PIDStat, error) { return taskFile(fs, pid, 0, "stat", parsePIDStat) }

// InnerPIDs returns the pids of a process in the PID namespaces below that of the
// reader, from the line NSpid of /proc/PID/status. If the process is in the
// reader's namespace, there is none.
func (fs FS) InnerPIDs(pid int) ([]int, error) { return taskFile(fs, pid, 0, "status", parseInnerPIDs) }

func parseInnerPIDs(text string) ([]int, error) {
	for line := range strings.Lines(text) {
		list, found := strings.CutPrefix(line, "NSpid:")
		if !found {
			continue
		}
		var all []int
		for _, word := range strings.Fields(list) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("field NSpid: %w", err)
			}
			all = append(all, pid)
		}
		return all[min(1, len(all)):], nil
	}
	return nil, errors.New("no field NSpid")
}

// ThreadStat reads /proc/PID/task/TID/stat.
func (fs FS) ThreadStat(pid, tid int) (PIDStat, error) {
	return taskFile(fs, pid, tid, "stat", parsePIDStat)
}

// parsePIDStat reads the only line of the file. The second field is the
// program's name in parentheses. The name may itself contain spaces, newlines
// and parentheses, so the field extends to the last closing parenthesis.
func parsePIDStat(text string) (PIDStat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return PIDStat{}, errors.New("no program name in parentheses")
	}
	s := PIDStat{Comm: text[open+1 : end]}
	f := strings.Fields(text[end+1:])
	const first = 3 // the number of f[0] in proc_pid_stat(5)
	if len(f) < 41-first+1 || len(f[0]) != 1 {
		return PIDStat{}, fmt.Errorf("%d fields: want at least 41", len(f)+first-1)
	}
	// All kernels use a letter for the state (proc_pid_stat(5), field 3).
	if s.State = f[0][0]; (s.State|0x20) < 'a' || (s.State|0x20) > 'z' {
		return PIDStat{}, fmt.Errorf("state %q: want a letter", f[0])
	}
	var err error
	integer := func(text string) int64 {
		n, e := strconv.ParseInt(text, 10, 64)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%q: want a number", text))
		}
		return n
	}
	ticks := func(text string) time.Duration {
		d, e := parseTicks(text)
		err = errors.Join(err, e)
		return d
	}
	s.PID = int(integer(strings.TrimSpace(text[:open])))
	s.PPID, s.PGRP, s.Session = int(integer(f[4-first])), int(integer(f[5-first])), int(integer(f[6-first]))
	s.MinorFaults, s.MajorFaults = integer(f[10-first]), integer(f[12-first])
	s.UserTime, s.SystemTime = ticks(f[14-first]), ticks(f[15-first])
	s.ChildUserTime, s.ChildSystemTime = ticks(f[16-first]), ticks(f[17-first])
	s.Nice, s.NumThreads = int(integer(f[19-first])), int(integer(f[20-first]))
	s.StartTime = ticks(f[22-first])
	s.Processor, s.Policy = unit.CPU(integer(f[39-first])), int(integer(f[41-first]))
	if err != nil {
		return PIDStat{}, err
	}
	return s, nil
}

// PIDs lists the processes, ascending.
func (fs FS) PIDs() ([]int, error) { return numericNames(fs.Proc) }

// Threads lists the threads of a process, ascending (/proc/PID/task). If the
// process has ended, it returns ErrGone.
func (fs FS) Threads(pid int) ([]int, error) {
	dir := filepath.Join(fs.Proc, strconv.Itoa(pid))
	tids, err := numericNames(filepath.Join(dir, "task"))
	return tids, goneIfAbsent(dir, err)
}

func numericNames(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 31); err == nil {
			ids = append(ids, int(n))
		}
	}
	slices.Sort(ids)
	return ids, nil
}
