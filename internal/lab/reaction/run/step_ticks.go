package run

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/lab/reaction"
	"tenon.sh/tenon/internal/lab/stepservice"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A reply holds the part of a tick of tenond that the lab needs.
type reply struct {
	began, ended time.Time
	events       []tick.Event
	bounds       []bound // the bounds that the tick wrote
	writes       int
	failed       int
}

// A bound is a write of cpu.max: how many CPUs the quota allowed before the
// write, and after it. The constant unbounded stands for no quota.
type bound struct {
	cgroup   node.CgroupPath
	from, to unit.MilliCPU
}

// stepTicks reads the ticks that tenond has recorded since its start.
func stepTicks(g *testbed.AgentRunner) ([]reply, error) {
	var saved bytes.Buffer
	if _, err := record.Capture(g.State, &saved); err != nil {
		return nil, fmt.Errorf("read the ticks of tenond: %w", err)
	}
	var all []reply
	err := record.Ticks(&saved, func(t record.Tick) { all = append(all, replyOf(t.Tick)) })
	if err != nil {
		return nil, fmt.Errorf("read the ticks of tenond: %w", err)
	}
	return all, nil
}

func replyOf(t tick.Tick) reply {
	u := reply{began: t.Begun, ended: t.EndTime(), events: t.Events}
	for _, o := range t.Done {
		if o.Err != nil {
			u.failed++
			continue
		}
		u.writes++
		if to, ok := o.Step.To.(node.CPUMax); ok {
			from, _ := o.Step.From.(node.CPUMax)
			u.bounds = append(u.bounds, bound{o.Step.Knob.Cgroup, milli(from), milli(to)})
		}
	}
	return u
}

// unbounded stands for an unlimited quota. It is larger than any quota.
const unbounded = unit.MilliCPU(1 << 40)

func milli(v node.CPUMax) unit.MilliCPU {
	if v.Period <= 0 || v.Quota == node.NoQuota {
		return unbounded
	}
	return unit.MilliCPU(v.Cores()*1000 + 0.5)
}

// stepOf combines the latencies of a step with the ticks of tenond during the
// step. turns must be sorted by time.
func stepOf(c stepservice.Latencies, turns []reply, job node.CgroupPath, length time.Duration) reaction.Step {
	s := reaction.Step{Began: c.Began, Length: length, Undone: c.Undone}
	order := make([]int, len(c.Due)) // order of the cycles of all threads by due time
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(c.Due[i], c.Due[j]) })
	for _, i := range order {
		s.Due = append(s.Due, c.Due[i].Microseconds())
		s.Delays = append(s.Delays, max(c.Delays[i], 0).Microseconds())
	}
	end := c.Began.Add(length)
	for _, t := range turns {
		began, ended := t.began.Sub(c.Began), t.ended.Sub(c.Began)
		if ended < 0 {
			for _, b := range t.bounds {
				if b.cgroup == job && b.to != unbounded {
					s.Quota = b.to
				}
			}
			continue
		}
		var woken *time.Duration
		for _, e := range t.events {
			if e.Kind != tick.EventDelay && e.Kind != tick.EventPressure {
				continue
			}
			at := e.At.Sub(c.Began)
			if woken == nil || at < *woken {
				woken = &at
			}
			if at >= 0 && at < length {
				s.Events = append(s.Events, reaction.StepEvent{At: at, Kind: string(e.Kind), Text: e.Text})
			}
		}
		if t.ended.After(end) {
			continue
		}
		r := reaction.StepTick{Began: began, Ended: ended, Woken: woken, Writes: t.writes, Failed: t.failed}
		for _, b := range t.bounds {
			r.Narrowed = r.Narrowed || b.cgroup == job && b.to < b.from
		}
		s.Ticks = append(s.Ticks, r)
	}
	return s
}
