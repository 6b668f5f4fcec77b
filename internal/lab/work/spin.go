package work

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
)

// Spin keeps each CPU of cpus busy with one thread until ctx ends. The threads
// use only registers, and so take no cache and no memory bandwidth from other
// work. If lowest is set, they are SCHED_IDLE. In a virtual machine, a service
// can be faster beside batch work: a virtual CPU that never sleeps needs no
// exits and no wake-ups from idle. The spinner shows how much faster a service
// is for this reason alone.
func Spin(ctx context.Context, cpus unit.CPUSet, lowest bool) error {
	var stop atomic.Bool
	n := 0
	failed := make(chan error, cpus.Len())
	done := make(chan struct{}, cpus.Len())
	for c := range cpus.All() {
		n++
		go func() {
			defer func() { done <- struct{}{} }()
			runtime.LockOSThread() // never unlocked, because the thread ends with its policy
			if err := task.SetAffinity(0, unit.CPUSetOf(c)); err != nil {
				failed <- fmt.Errorf("spin on CPU %d: %w", c, err)
				return
			}
			if lowest {
				if err := task.SetIdle(0); err != nil {
					failed <- fmt.Errorf("spin on CPU %d: %w", c, err)
					return
				}
			}
			var x uint64
			for !stop.Load() {
				x += Spend(1 << 20)
			}
			runtime.KeepAlive(x)
		}()
	}
	// There must be one processor more than spinners, so that the runtime can
	// still handle signals.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), n+1))
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop.Store(true)
	for range n {
		<-done
	}
	return err
}

// Spend burns about n cycles in registers.
//
//go:noinline
func Spend(n uint64) uint64 {
	x := n
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}
