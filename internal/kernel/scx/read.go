package scx

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"tenon.sh/tenon/internal/model/node"
)

// A view holds the counters of the program in mapped memory.
type view struct {
	cpus, shards, pods, stats *ebpf.Memory

	cpu scheduler613ScxCpu // buffer for a copy
}

func newView(c *ebpf.Collection, l *layout) (view, error) {
	var v view
	for name, into := range map[string]**ebpf.Memory{
		scheduler613MapCpus: &v.cpus, scheduler613MapShards: &v.shards, scheduler613MapPods: &v.pods, scheduler613MapPodStats: &v.stats,
	} {
		memory, err := c.Maps[name].Memory()
		if err != nil {
			return view{}, fmt.Errorf("map the counters %s: %w", name, err)
		}
		*into = memory
	}
	return v, nil
}

// element copies one element of an array.
func element[T any](from *ebpf.Memory, index int, into *T) error {
	size := unsafe.Sizeof(*into)
	_, err := from.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(into)), size), int64(index)*int64(size))
	return err
}

// setPod writes the weight and the quota of a pod. It does not change the
// budget, which the BPF program sets.
func (v *view) setPod(slot int, weight uint32, quota uint64) error {
	var p scheduler613QosPod
	at := int64(slot) * int64(unsafe.Sizeof(p))
	for offset, field := range map[uintptr][]byte{
		unsafe.Offsetof(p.QuotaNs): unsafe.Slice((*byte)(unsafe.Pointer(&quota)), unsafe.Sizeof(quota)),
		unsafe.Offsetof(p.Weight):  unsafe.Slice((*byte)(unsafe.Pointer(&weight)), unsafe.Sizeof(weight)),
	} {
		if _, err := v.pods.WriteAt(field, at+int64(offset)); err != nil {
			return fmt.Errorf("write slot %d: %w", slot, err)
		}
	}
	return nil
}

// Status reads all values from mapped memory and a few small files. This takes
// about 20 µs.
func (s *Scheduler) Status() (Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st Status
	err := ErrClosed
	if !s.closed {
		st, err = s.status()
	}
	if err != nil {
		return Status{}, fmt.Errorf("read the status of the BE scheduler: %w", err)
	}
	return st, nil
}

func (s *Scheduler) status() (Status, error) {
	now, err := readLoaded(sysfs)
	if err != nil {
		return Status{}, err
	}
	st := Status{
		SchedulerStatus: node.SchedulerStatus{
			State: now.state, Running: now.state == enabled && now.ours(), Variant: string(s.variant), Since: s.since,
			Run: map[Class]time.Duration{}, ExpelDelay: make([]uint64, delayBuckets),
		},
		Enabled: now.schedulers, Rejected: now.rejected, Beat: time.Since(s.beat),
	}
	if st.Exit, err = s.readExit(); err != nil {
		return Status{}, err
	}
	st.Running = st.Running && st.Exit.Kind == ExitNone
	for _, sh := range s.layout.shards {
		for _, threads := range sh.cores {
			for _, c := range threads {
				if err := element(s.view.cpus, int(c.ID), &s.view.cpu); err != nil {
					return Status{}, fmt.Errorf("read the counters of CPU %d: %w", c.ID, err)
				}
				st.addCPU(&s.view.cpu)
			}
		}
	}
	for i, sh := range s.layout.shards {
		var counters scheduler613ScxShard
		if err := element(s.view.shards, i, &counters); err != nil {
			return Status{}, fmt.Errorf("read the queues of shard %d: %w", i, err)
		}
		st.addShard(sh.llc, &counters)
	}
	for slot := range st.Pods {
		var p scheduler613ScxPod
		if err := element(s.view.stats, slot, &p); err != nil {
			return Status{}, fmt.Errorf("read the counters of slot %d: %w", slot, err)
		}
		st.Pods[slot] = PodStatus{Run: time.Duration(p.RunNs), Wait: time.Duration(p.WaitNs), Throttled: p.Throttled}
		st.Wait += st.Pods[slot].Wait
	}
	return st, nil
}

func (st *Status) addCPU(c *scheduler613ScxCpu) {
	st.Idle += time.Duration(c.ClassNs[scheduler613QosClassQOS_NONE])
	for _, class := range node.SchedulerClasses {
		st.Run[class] += time.Duration(c.ClassNs[kernelClass[class]])
	}
	st.Strayed += time.Duration(c.StrayedNs)
	st.ExpelIdle += time.Duration(c.RefusedNs[scheduler613QosVerdictQOS_REFUSE_SMT])
	st.HoldIdle += time.Duration(c.RefusedNs[scheduler613QosVerdictQOS_REFUSE_HOLD])
	for i, n := range c.Delays {
		st.ExpelDelay[i] += n
	}
	st.Refusals += c.Verdicts[scheduler613QosVerdictQOS_REFUSE_SMT] + c.Verdicts[scheduler613QosVerdictQOS_REFUSE_HOLD]
	st.Capped += c.Verdicts[scheduler613QosVerdictQOS_REFUSE_CAP]
	st.Headroom += c.Verdicts[scheduler613QosVerdictQOS_REFUSE_HEADROOM]
	for index, into := range map[scheduler613ScxCount]*uint64{
		scheduler613ScxCountSCX_SWITCHES:      &st.Switches,
		scheduler613ScxCountSCX_EXPELS:        &st.Expels,
		scheduler613ScxCountSCX_STARTS:        &st.Starts,
		scheduler613ScxCountSCX_VIOLATIONS:    &st.Violations,
		scheduler613ScxCountSCX_RACES:         &st.Races,
		scheduler613ScxCountSCX_RESUMED:       &st.Resumed,
		scheduler613ScxCountSCX_PREEMPTED:     &st.Preempted,
		scheduler613ScxCountSCX_REENQUEUED:    &st.Reenqueued,
		scheduler613ScxCountSCX_EXHAUSTED:     &st.Throttled,
		scheduler613ScxCountSCX_URGENT:        &st.Urgent,
		scheduler613ScxCountSCX_PINNED:        &st.Pinned,
		scheduler613ScxCountSCX_KICKS_PREEMPT: &st.KicksExpel,
		scheduler613ScxCountSCX_KICKS_WAKE:    &st.KicksWake,
		scheduler613ScxCountSCX_STRAYS:        &st.Strays,
		scheduler613ScxCountSCX_LOST:          &st.Lost,
	} {
		*into += c.Counts[index]
	}
}

func (st *Status) addShard(llc int, s *scheduler613ScxShard) {
	if n := llc + 1 - len(st.Queues); n > 0 {
		st.Queues = append(st.Queues, make([]node.SchedulerQueue, n)...)
	}
	st.Queues[llc].Waiting += int(s.Queued)
	st.Queues[llc].Urgent += int(s.Urgent)
	st.Queues[llc].Pinned += int(s.Pinned)
	st.Parked += int(s.Parked)
	st.OldestWait = max(st.OldestWait, time.Duration(s.OldestNs))
	st.Relief += s.Relieved
	st.Drift += s.Repaired
	st.LongWaits += s.LongWaits
	st.KicksTimer += s.Woken + s.Stopped
}
