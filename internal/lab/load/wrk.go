package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/unit"
)

// The original experiment's wrk -t6 -c54: 9 connections a thread.
const (
	mostWrkThreads       = 6
	connectionsPerThread = 9
)

// WrkConfig is a call of wrk (version 4), the closed-loop client of the
// original experiment. URL and Duration are required.
type WrkConfig struct {
	URL      string
	Duration time.Duration // rounded up to whole seconds, as wrk wants it
	// CPUs are those wrk may run on; empty: those of the caller.
	CPUs unit.CPUSet
	// Threads is -t; 0: 6 as in the original, but no more than CPUs.
	Threads int
	// Connections is -c; 0: 9 per thread, as in the original's 54.
	Connections int
	// Path is the wrk binary; empty: wrk from PATH.
	Path string
	// Started, if set, is told wrk's process id as soon as it runs.
	Started func(pid int)
}

// Args are the arguments for wrk, as in -t6 -c54 -d60s --latency URL.
func (c WrkConfig) Args() []string {
	threads := c.Threads
	if threads == 0 {
		threads = mostWrkThreads
		if n := c.CPUs.Len(); n > 0 {
			threads = min(threads, n)
		}
	}
	connections := c.Connections
	if connections == 0 {
		connections = connectionsPerThread * threads
	}
	seconds := (c.Duration + time.Second - 1) / time.Second
	return []string{"-t" + strconv.Itoa(threads), "-c" + strconv.Itoa(connections), fmt.Sprintf("-d%ds", seconds), "--latency", c.URL}
}

// RunWrk runs wrk and reads its whole output. Cancelling ctx kills it, and so
// does the end of the calling process. The error is for a wrk that could not
// run or whose output makes no sense; a run that had errors is void.
func RunWrk(ctx context.Context, c WrkConfig) (*WrkResult, error) {
	if c.Path == "" {
		c.Path = "wrk"
	}
	if c.Duration <= 0 {
		return nil, fmt.Errorf("wrk: duration %v: want more than 0", c.Duration)
	}
	cmd := exec.CommandContext(ctx, c.Path, c.Args()...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	limits := ownSocketLimits()
	failed := make(chan error)
	// A thread of its own that dies afterwards: wrk inherits its affinity,
	// and gets the death signal when it ends.
	go func() {
		runtime.LockOSThread()
		failed <- func() error {
			if err := pinThread(c.CPUs); err != nil {
				return err
			}
			if err := cmd.Start(); err != nil {
				return err
			}
			limits = readSocketLimits("/proc/sys", cmd.Process.Pid)
			if c.Started != nil {
				c.Started(cmd.Process.Pid)
			}
			return cmd.Wait()
		}()
	}()
	err := <-failed
	line := strings.Join(cmd.Args, " ")
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", line, ctx.Err())
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%s: %w: install it (Debian, Ubuntu: apt-get install wrk; Fedora: dnf install wrk; Alpine: apk add wrk), or use Tenon's own client", line, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(output.String()))
	}
	r, err := ParseWrk(output.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", line, err)
	}
	r.Command = cmd.Args
	r.explain(limits)
	return r, nil
}

// pinThread limits the calling thread to cpus; empty: leaves it as it is.
func pinThread(cpus unit.CPUSet) error {
	if cpus.Empty() {
		return nil
	}
	var set unix.CPUSet
	for cpu := range cpus.All() {
		set.Set(int(cpu))
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin a thread to CPUs %v: %w", cpus, err)
	}
	return nil
}
