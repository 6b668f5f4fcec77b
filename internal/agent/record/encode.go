package record

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// An encoder turns ticks into lines. It keeps the previous tick without a copy,
// because a host never changes the maps of an old snapshot.
type encoder struct {
	last Tick
	rest node.Snapshot
	// distinct means that the previous tick had at most one want for each knob.
	distinct bool
}

// line returns the line for the tick with this number. If key is true, it is a
// key line. If the line of the previous tick was not written, the next line
// must be a key line.
func (e *encoder) line(t Tick, number int, key bool) (line, error) {
	s := &t.Snapshot
	if i := firstMisplaced(s.Workloads); i > 0 {
		return line{}, fmt.Errorf("record a tick: workload %q follows %q: want each once, in order",
			s.Workloads[i].ID, s.Workloads[i-1].ID)
	}
	l := line{Tick: number, At: s.At, Begun: t.Begun, Took: durations{t.Sense, t.Decide, t.Act}, Events: t.Events, Observed: t.Observed, SLOViolated: s.SLOViolated}
	if key {
		e.last = Tick{}
		l.Version, l.State = version, &t.Before
	}
	if key || !reflect.DeepEqual(t.Config, e.last.Config) {
		l.Config = &t.Config
	}
	if key || t.MaxSteps != e.last.MaxSteps {
		l.MaxSteps = &t.MaxSteps
	}
	rest := restOf(*s)
	if key || !reflect.DeepEqual(rest, e.rest) {
		l.Rest = &rest
	}
	if key || !reflect.DeepEqual(s.Usage, e.last.Snapshot.Usage) {
		l.Usage = &s.Usage
	}
	if l.Ran = ranSince(e.last.Snapshot.Busy, s.Busy); l.Ran == nil {
		l.Busy = s.Busy
	}
	if l.LSRan = ranSince(e.last.Snapshot.Isolation.LSOn, s.Isolation.LSOn); l.LSRan == nil {
		l.LSOn = s.Isolation.LSOn
	}
	if l.Waited = waitedSince(e.last.Snapshot.Waits, s.Waits); l.Waited == nil {
		l.Waits = s.Waits
	}
	l.workloads(e.last.Snapshot.Workloads, s.Workloads)
	l.Now = knobChanges(e.last.Snapshot.Knobs.Now, s.Knobs.Now)
	l.Before = knobChanges(e.last.Snapshot.Knobs.Before, s.Knobs.Before)
	l.Wants = e.changedWants(t.Wants)
	for _, o := range t.Done {
		l.Done = append(l.Done, lineOfOutcome(o))
	}
	e.last, e.rest = t, rest
	return l, nil
}

// firstMisplaced returns the index of the first workload that is out of the
// order of IDs. It returns 0 if all are in order.
func firstMisplaced(all []node.Workload) int {
	for i := 1; i < len(all); i++ {
		if all[i].ID <= all[i-1].ID {
			return i
		}
	}
	return 0
}

// restOf returns a snapshot without the parts for which a line has fields. New
// fields of node.Snapshot are part of the rest, so that they are recorded.
func restOf(s node.Snapshot) node.Snapshot {
	s.At, s.SLOViolated, s.Usage, s.Busy, s.Workloads, s.Waits = node.Snapshot{}.At, false, node.Usage{}, nil, nil, nil
	s.Knobs.Now, s.Knobs.Before, s.Isolation.LSOn = nil, nil, nil
	return s
}

// workloads sets the fields Gone, Come and Used, which tell how the list of
// workloads has changed. Both lists are sorted.
func (l *line) workloads(last, now []node.Workload) {
	for i := range now {
		w := &now[i]
		for len(last) > 0 && last[0].ID < w.ID {
			l.Gone, last = append(l.Gone, last[0].ID), last[1:]
		}
		had := len(last) > 0 && last[0].ID == w.ID
		if had && EqualButUse(&last[0], w) {
			if !sameUse(&last[0].Usage, &w.Usage) {
				if l.Used == nil {
					l.Used = map[int]useLine{}
				}
				l.Used[i] = usedSince(last[0].Usage, w.Usage)
			}
		} else {
			l.Come = append(l.Come, *w)
		}
		if had {
			last = last[1:]
		}
	}
	for _, w := range last {
		l.Gone = append(l.Gone, w.ID)
	}
}

func knobChanges(last, now map[node.Knob]node.Value) []knobLine {
	if reflect.ValueOf(last).UnsafePointer() == reflect.ValueOf(now).UnsafePointer() {
		return nil // a host returns the same map if nothing in it has changed
	}
	var changes []knobLine
	for k, v := range now {
		if v != nil && last[k] != v {
			changes = append(changes, knobLine{Knob: k, Value: v.String()})
		}
	}
	for k, v := range last {
		if v != nil && now[k] == nil {
			changes = append(changes, knobLine{Knob: k, Gone: true})
		}
	}
	slices.SortFunc(changes, func(a, b knobLine) int { return a.Knob.Compare(b.Knob) })
	return changes
}

func compareWorkloads(a, b node.Workload) int { return strings.Compare(string(a.ID), string(b.ID)) }
