package capability

import (
	"errors"
	"runtime"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
)

// probeTasks probes the scheduling attributes of single threads.
func (p prober) probeTasks(can node.Capabilities) {
	can[node.FeatureEEVDFSlice] = probeSlice()
	can[node.FeatureSchedIdle] = probeSchedIdle()
	can[node.FeatureSchedFIFO] = fifoAnswer(ownThreadToFIFO())
	can[node.FeatureCoreSched] = probeCoreSched()
}

// probeCoreSched reads the core-scheduling cookie of this thread. While no core
// has several online CPUs, the kernel refuses (ENODEV).
func probeCoreSched() node.Answer {
	if _, err := task.CoreCookie(0); err != nil {
		return answerRefused("prctl(PR_SCHED_CORE)", err, task.ErrUnsupported, syscall.EINVAL, syscall.ENODEV)
	}
	return yes("prctl(PR_SCHED_CORE) reads a cookie")
}

// runOnThread runs f on a new thread, so that f may change the thread's
// attributes. The thread then exits.
func runOnThread(f func() node.Answer) node.Answer {
	answer := make(chan node.Answer)
	go func() {
		// The thread stays locked to the goroutine. So it ends when the
		// goroutine ends.
		runtime.LockOSThread()
		answer <- f()
	}()
	return <-answer
}

// probeSlice sets an unusual time slice and reads it back, because older
// kernels ignore the slice without an error.
func probeSlice() node.Answer {
	return runOnThread(func() node.Answer {
		const odd = 3210 * time.Microsecond
		a, err := task.Attr(0)
		if err != nil {
			return unknown("%v", err)
		}
		a.Slice = odd
		if err := task.SetAttr(0, a); err != nil {
			return answerRefused("sched_setattr with a slice", err, syscall.EINVAL)
		}
		now, err := task.Attr(0)
		switch {
		case err != nil:
			return unknown("%v", err)
		case now.Slice != odd:
			return no("sched_setattr takes a slice of %v and shows %v", odd, now.Slice)
		}
		return yes("sched_setattr keeps a slice of %v", odd)
	})
}

func probeSchedIdle() node.Answer {
	return runOnThread(func() node.Answer {
		if err := task.SetIdle(0); err != nil {
			if errors.Is(err, syscall.EINVAL) {
				return no("%v", err)
			}
			return unknown("%v", err)
		}
		return yes("sched_setattr accepts SCHED_IDLE")
	})
}

// ownThreadToFIFO tries to give a new thread the real-time policy of the
// watchdog (SCHED_FIFO). The thread exits soon after. Until then it is a normal
// thread again: the kernel moves no process into a cgroup without a real-time
// budget while one of its threads is real-time (EINVAL).
func ownThreadToFIFO() error {
	var err error
	runOnThread(func() node.Answer {
		if err = task.SetAttr(0, task.SchedAttr{Policy: task.FIFO, Priority: 1}); err == nil {
			err = task.SetAttr(0, task.SchedAttr{Policy: task.Normal})
		}
		return node.Answer{}
	})
	return err
}

// fifoAnswer turns the kernel's result into an answer. The kernel returns EPERM
// without CAP_SYS_NICE. It also refuses root if the cgroup has no real-time
// budget (cpu.rt_runtime_us of cgroup v1, CONFIG_RT_GROUP_SCHED).
func fifoAnswer(err error) node.Answer {
	switch {
	case err == nil:
		return yes("sched_setattr accepts SCHED_FIFO")
	case errors.Is(err, syscall.EPERM):
		return no("sched_setattr refuses SCHED_FIFO: %v (it needs CAP_SYS_NICE and, with CONFIG_RT_GROUP_SCHED, cpu.rt_runtime_us of the cgroup above 0)", err)
	}
	return unknown("%v", err)
}
