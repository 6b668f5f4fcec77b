// Package stepservice is the service of the reaction experiment. Its process sleeps
// between steps and is busy during each of them. It measures its own delays.
package stepservice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// A Plan is the work of the service. The service sleeps between the steps.
// During each step, one thread on each CPU works for Work in every Period.
// Times count from the start of the process.
type Plan struct {
	CPUs   unit.CPUSet   `json:"cpus"`
	Period time.Duration `json:"period_ns"`
	Work   time.Duration `json:"work_ns"`
	Steps  []At          `json:"steps"`
}

// An At is one step: the time of its beginning, counted from the start of the
// process, and its length.
type At struct {
	At     time.Duration `json:"at_ns"`
	Length time.Duration `json:"length_ns"`
}

// Schedule draws the start times of the steps. Before the first step, the time
// lead passes. Before each step there is a pause of random length, from least
// to most. The same seed gives the same times.
func Schedule(seed uint64, steps int, lead, length, least, most time.Duration) []At {
	random := rand.New(rand.NewPCG(seed, 0x73746570))
	all := make([]At, steps)
	at := lead
	for i := range all {
		at += least + time.Duration(random.Int64N(int64(max(most-least, 1))))
		all[i] = At{At: at, Length: length}
		at += length
	}
	return all
}

// A Latencies holds the measurements of one step. A cycle is due every Period,
// and ends when its Work is done. The delay of a cycle is the time from its due
// time to its end, minus Work. This is the time that the thread waited for a
// CPU before and during the cycle.
type Latencies struct {
	Began  time.Time       `json:"began"`  // due time of the first cycle
	Delays []time.Duration `json:"delays"` // delays of the cycles of all threads, in the order of Due
	Due    []time.Duration `json:"due"`    // due time of each cycle, since Began
	Undone int             `json:"undone"` // cycles that were due in the step but had not begun at its end
}

// Run is the main function of the service. It reads a Plan and, after
// all steps, writes one line of Latencies for each step.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	var p Plan
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return fmt.Errorf("read the steps to make: %w", err)
	}
	if p.Period <= 0 || p.Work <= 0 || p.Work >= p.Period || p.CPUs.Empty() {
		return fmt.Errorf("steps of %v in each %v on CPUs %v: want work for a part of each period", p.Work, p.Period, p.CPUs)
	}
	// A garbage collection would stop the threads. The process does not live
	// long, so it needs none.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + p.CPUs.Len())
	begun, zero := time.Now(), testbed.MonotonicNow()
	var mu sync.Mutex
	var done sync.WaitGroup
	var failed error
	courses := make([]Latencies, len(p.Steps))
	for cpu := range p.CPUs.All() {
		done.Go(func() {
			mine, err := p.runOnCPU(ctx, cpu, zero)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			for i, c := range mine {
				courses[i].Delays = append(courses[i].Delays, c.Delays...)
				courses[i].Due = append(courses[i].Due, c.Due...)
				courses[i].Undone += c.Undone
			}
		})
	}
	done.Wait()
	if failed != nil || ctx.Err() != nil {
		return failed
	}
	to := json.NewEncoder(out)
	for i, c := range courses {
		c.Began = begun.Add(p.Steps[i].At)
		if err := to.Encode(c); err != nil {
			return err
		}
	}
	return nil
}

// Parse reads the output of Run, which must have the wanted number of steps.
func Parse(out []byte, want int) ([]Latencies, error) {
	var all []Latencies
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var c Latencies
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("read the latencies of the steps: %w", err)
		}
		all = append(all, c)
	}
	if len(all) != want {
		return nil, fmt.Errorf("the service made %d of %d steps", len(all), want)
	}
	return all, nil
}

// runOnCPU makes the steps on one CPU. zero is the time of the monotonic clock
// at which the process starts its plan.
func (p Plan) runOnCPU(ctx context.Context, cpu unit.CPU, zero time.Duration) ([]Latencies, error) {
	runtime.LockOSThread() // never unlocked, because the thread ends with its affinity
	if err := task.SetAffinity(0, unit.CPUSetOf(cpu)); err != nil {
		return nil, fmt.Errorf("make steps on CPU %d: %w", cpu, err)
	}
	// By default, the timer slack delays the wake-up of a sleeping thread by 50
	// µs (prctl(2)).
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set the timer slack to 1 ns: %w", err)
	}
	all := make([]Latencies, len(p.Steps))
	for i, s := range p.Steps {
		c := &all[i]
		room := int(s.Length/p.Period) + 1
		c.Delays, c.Due = make([]time.Duration, 0, room), make([]time.Duration, 0, room)
		for due := time.Duration(0); due < s.Length; due += p.Period {
			if ctx.Err() != nil {
				return nil, nil
			}
			if now := testbed.MonotonicNow() - zero; now >= s.At+s.Length {
				c.Undone += int((s.Length - due + p.Period - 1) / p.Period)
				break
			}
			sleepUntil(ctx, zero+s.At+due)
			burn(p.Work)
			c.Due = append(c.Due, due)
			c.Delays = append(c.Delays, testbed.MonotonicNow()-zero-s.At-due-p.Work)
		}
	}
	return all, nil
}

// burn uses as much CPU time of this thread as length.
func burn(length time.Duration) {
	end := testbed.ThreadTime() + length
	var x uint64
	for testbed.ThreadTime() < end {
		x += work.Spend(5000)
	}
	runtime.KeepAlive(x)
}

// longestNap bounds how long it takes until the process notices that ctx has
// ended.
const longestNap = 200 * time.Millisecond

// sleepUntil blocks this thread. If the Go runtime slept instead, another
// thread would have to wake up first.
func sleepUntil(ctx context.Context, at time.Duration) {
	for now := testbed.MonotonicNow(); now < at && ctx.Err() == nil; now = testbed.MonotonicNow() {
		until := unix.NsecToTimespec(int64(min(at, now+longestNap)))
		// A signal of the runtime may cause EINTR. The loop then sleeps again.
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil)
	}
}
