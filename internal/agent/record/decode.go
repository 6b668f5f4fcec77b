package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A decoder turns the lines of a record back into ticks.
type decoder struct {
	tick  Tick
	wants map[node.Knob]wantLine
	last  int // number of the tick before; 0: none
}

// errNoKey means that a line depends on earlier lines that were not read.
var errNoKey = errors.New("it says what is new since a tick that is not in the record")

// entry is one tick that was read from a record.
type entry struct {
	Tick
	key bool // the line is a key line; Before is its stored state
	// follows means that the record also has the tick just before this one.
	follows bool
}

// next returns the tick of the line l, with its wants in the order of knobs. If
// the tick had several wants for one knob, next returns only the first of them.
// After an error, the decoder cannot continue before the next key line.
func (d *decoder) next(l line) (e entry, err error) {
	defer func() {
		if err != nil {
			d.last = 0
		}
	}()
	e = entry{key: l.State != nil, follows: l.Tick == d.last+1 && d.last > 0}
	switch {
	case !e.key && !e.follows:
		return e, errNoKey
	case e.key && (l.Config == nil || l.MaxSteps == nil || l.Rest == nil || l.Usage == nil):
		return e, errors.New("a key line must hold config, max_steps, rest and usage")
	case e.key:
		d.tick, d.wants = Tick{Before: *l.State}, map[node.Knob]wantLine{}
	}
	d.last = l.Tick
	t := &d.tick
	t.Begun, t.Events, t.Observed = l.Begun, l.Events, l.Observed
	t.Sense, t.Decide, t.Act = l.Took.Sense, l.Took.Decide, l.Took.Act
	if l.Config != nil {
		t.Config = *l.Config
	}
	if l.MaxSteps != nil {
		t.MaxSteps = *l.MaxSteps
	}
	if err := d.snapshot(l); err != nil {
		return e, err
	}
	if err := d.decisions(l); err != nil {
		return e, err
	}
	e.Tick = *t
	return e, nil
}

// snapshot applies the changes in the line to the last snapshot. It changes
// copies of the values, because the State of a policy may refer to the values.
func (d *decoder) snapshot(l line) error {
	old := d.tick.Snapshot
	s := old
	if l.Rest != nil {
		s = *l.Rest
		s.Workloads, s.Usage, s.Knobs.Now, s.Knobs.Before = old.Workloads, old.Usage, old.Knobs.Now, old.Knobs.Before
	}
	s.At, s.SLOViolated = l.At, l.SLOViolated
	if s.Busy = l.Busy; l.Ran != nil {
		s.Busy = l.Ran.addTo(old.Busy)
	}
	if s.Isolation.LSOn = l.LSOn; l.LSRan != nil {
		s.Isolation.LSOn = l.LSRan.addTo(old.Isolation.LSOn)
	}
	if s.Waits = l.Waits; l.Waited != nil {
		s.Waits = l.Waited.addTo(old.Waits)
	}
	if l.Usage != nil {
		s.Usage = *l.Usage
	}
	var err error
	if s.Workloads, err = l.applyWorkloads(s.Workloads); err != nil {
		return err
	}
	if s.Knobs.Now, err = applyKnobs(s.Knobs.Now, l.Now); err != nil {
		return err
	}
	if s.Knobs.Before, err = applyKnobs(s.Knobs.Before, l.Before); err != nil {
		return err
	}
	d.tick.Snapshot = s
	return checkCPUs(s)
}

func (l line) applyWorkloads(last []node.Workload) ([]node.Workload, error) {
	gone := map[node.WorkloadID]bool{}
	for _, id := range l.Gone {
		gone[id] = true
	}
	for _, w := range l.Come {
		gone[w.ID] = true
	}
	now := slices.Clone(l.Come)
	for _, w := range last {
		if !gone[w.ID] {
			now = append(now, w)
		}
	}
	slices.SortStableFunc(now, compareWorkloads)
	if i := firstMisplaced(now); i > 0 {
		return nil, fmt.Errorf("workload %q is there twice", now[i].ID)
	}
	for i, u := range l.Used {
		if i < 0 || i >= len(now) {
			return nil, fmt.Errorf("use of workload %d: there are %d", i, len(now))
		}
		if u.Ran != nil {
			u.PerCPU = u.Ran.addTo(now[i].Usage.PerCPU)
		}
		if u.Counted != nil {
			u.Delay.Counts = u.Counted.addTo(now[i].Usage.Delay.Counts)
		}
		now[i].Usage = u.Usage
	}
	return now, nil
}

func applyKnobs(last map[node.Knob]node.Value, changes []knobLine) (map[node.Knob]node.Value, error) {
	now := make(map[node.Knob]node.Value, len(last)+len(changes))
	maps.Copy(now, last)
	for _, l := range changes {
		if l.Gone {
			delete(now, l.Knob)
			continue
		}
		v, err := node.ParseValue(l.File, l.Value)
		if err != nil {
			return nil, fmt.Errorf("value of %v: %w", l.Knob, err)
		}
		now[l.Knob] = v
	}
	return now, nil
}

// decisions applies the changes of wants in the line. It also reads the steps.
func (d *decoder) decisions(l line) error {
	for _, w := range l.spellOut(d.wants) {
		if w.Gone {
			delete(d.wants, w.Knob)
		} else {
			d.wants[w.Knob] = w
		}
	}
	d.tick.Wants, d.tick.Done = nil, nil
	for _, w := range slices.SortedFunc(maps.Values(d.wants), compareWants) {
		want, err := w.want()
		if err != nil {
			return err
		}
		d.tick.Wants = append(d.tick.Wants, want)
	}
	for _, o := range l.Done {
		outcome, err := o.outcome()
		if err != nil {
			return err
		}
		d.tick.Done = append(d.tick.Done, outcome)
	}
	return nil
}

// spellOut returns one entry for each want that the line changes. In the line,
// one entry with Alike stands for several wants. last holds the wants of the
// previous line.
func (l line) spellOut(last map[node.Knob]wantLine) []wantLine {
	if !slices.ContainsFunc(l.Wants, func(w wantLine) bool { return w.Alike }) {
		return l.Wants
	}
	stood := map[wantLine][]node.CgroupPath{}
	for k, w := range last {
		w.Cgroup = ""
		stood[w] = append(stood[w], k.Cgroup)
	}
	var all []wantLine
	for _, w := range l.Wants {
		cgroups := []node.CgroupPath{w.Cgroup}
		if w.Alike {
			from := last[w.Knob]
			from.Cgroup, w.Alike = "", false
			cgroups = stood[from]
		}
		for _, w.Cgroup = range cgroups {
			all = append(all, w)
		}
	}
	return all
}

// checkCPUs returns an error if a CPU number is out of range. In a real record,
// all CPU numbers are below unit.MaxCPUs.
func checkCPUs(s node.Snapshot) error {
	check := func(c unit.CPU) error {
		if c < 0 || c >= unit.MaxCPUs {
			return fmt.Errorf("cpu %d: want a number from 0 to %d", c, unit.MaxCPUs-1)
		}
		return nil
	}
	var errs []error
	for _, c := range s.Topology.CPUs {
		errs = append(errs, check(c.ID))
	}
	for c := range s.Busy {
		errs = append(errs, check(c))
	}
	for c := range s.Isolation.LSOn {
		errs = append(errs, check(c))
	}
	for _, w := range s.Workloads {
		for c := range w.Usage.PerCPU {
			errs = append(errs, check(c))
		}
	}
	return errors.Join(errs...)
}
