package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
)

// A saturation is the state of BE and of the scheduler at the end of saturate.
type saturation struct {
	For         time.Duration        `json:"for_ns"`
	Exit        string               `json:"exit,omitempty"` // reason why the scheduler ended; empty: it still runs
	Spills      int                  `json:"spills"`         // number of threads demoted to the fair class
	Returned    int                  `json:"returned"`       // number of demoted threads that came back
	LongestWait time.Duration        `json:"longest_wait_ns"`
	OldestWait  time.Duration        `json:"oldest_wait_ns"` // at the end
	Counts      node.SchedulerCounts `json:"counts"`
	LS          []json.RawMessage    `json:"ls"`
	BE          []json.RawMessage    `json:"be"`
}

// spillFor is the minimum time for which a demoted thread stays in the fair class.
const spillFor = 3 * time.Second

// saturate keeps LS threads busy on all CPUs. BE hogs run beside them, some of
// them bound to one CPU. Like the agent, it demotes threads that wait too long
// (docs/glossary.md).
func saturate(ctx context.Context, length time.Duration) error {
	if err := makeGroups(); err != nil {
		return err
	}
	if err := setGroups(modes["scx"]); err != nil {
		return err
	}
	s, err := loadScheduler(true, bothGroups)
	if err != nil {
		return err
	}
	r := saturation{For: length}
	forever := nanos(math.MaxInt64)
	ls, err := start(ctx, "-g", lsGroup, "be", "0,1,2,3", "20000", "0", forever)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	be, err := start(ctx, "-p", "7", "-g", beGroup, "be", "-1,-1,0,3", "20000", "0", forever)
	if err == nil {
		err = r.spill(s, now()+length)
		err = errors.Join(err, be.stop())
	}
	err = errors.Join(err, ls.stop())
	status, failed := s.Status()
	err = errors.Join(err, failed)
	r.Counts, r.OldestWait = status.SchedulerCounts, status.OldestWait
	fmt.Printf("# %+v %+v\n", status.Queues, status.SchedulerCounts)
	if !status.Running {
		r.Exit = fmt.Sprintf("%+v", status.Exit)
	}
	// Wait for LS first, because BE can only end when LS has ended.
	if r.LS, failed = ls.wait(); failed != nil {
		err = errors.Join(err, failed)
	}
	if be != nil {
		r.BE, failed = be.wait()
		err = errors.Join(err, failed)
	}
	return errors.Join(err, s.Close(), report(r))
}

// spill moves threads that wait too long to the fair class, and later back. It
// ends at the given time.
func (r *saturation) spill(s *scx.Scheduler, until time.Duration) error {
	spilled := map[int]time.Duration{} // end of the demotion, by thread
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for now() < until {
		select {
		case <-second.C:
			if err := s.Beat(); err != nil {
				return err
			}
			for tid, end := range spilled {
				if now() < end || !s.HasRoom(tid) {
					continue
				}
				delete(spilled, tid)
				if err := task.SetPolicy(tid, task.Ext); err != nil {
					return err
				}
				fmt.Printf("# %v back %d\n", now(), tid)
				r.Returned++
			}
		case e, ok := <-s.Events():
			if !ok {
				return errors.New("the scheduler's events have ended")
			}
			switch e := e.(type) {
			case scx.LongWait:
				fmt.Printf("# %v %+v\n", now(), e)
				r.LongestWait = max(r.LongestWait, e.Wait)
				if err := task.SetPolicy(e.TID, task.Normal); err != nil {
					return err
				}
				spilled[e.TID] = now() + spillFor
				r.Spills++
			case scx.Exited:
				return fmt.Errorf("the scheduler has ended: %+v", e.Exit)
			}
		}
	}
	return nil
}
