package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/shadow"
	"tenon.sh/tenon/internal/model/node"
)

// Replay makes all decisions of a record again and compares the results. If
// config is nil, each tick uses its recorded configuration, and all wants (see
// docs/glossary.md) and steps should be the same. Otherwise, the report shows the
// effect of config. The knobs then have the values that config would have written.
// But the workloads have the recorded resource usage, because their reaction to
// these values is not known.
//
// If a crash has cut off the end of the record, Replay reads the part before
// it. If Replay cannot read something and returns an error, the report covers
// the ticks before that.
func Replay(r io.Reader, config *policy.Config) (Report, error) {
	from, err := newReader(r)
	if err != nil {
		return Report{}, err
	}
	p := player{config: config, changes: map[node.Knob]*Change{}}
	for {
		e, err := from.next()
		if err == nil {
			err = p.play(e)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if err == nil && p.report.Ticks == 0 {
				err = errors.New("the record holds no tick")
			}
			return p.done(from), err
		}
	}
}

// A player replays ticks one after the other.
type player struct {
	config  *policy.Config // nil: as recorded
	state   policy.State
	world   shadow.World
	report  Report
	changes map[node.Knob]*Change
}

func (p *player) play(e entry) error {
	if e.key {
		if err := p.checkpoint(e); err != nil {
			return err
		}
	}
	t := e.Tick
	config := t.Config
	if p.config != nil {
		config = *p.config
		t.Snapshot = p.world.See(t.Snapshot)
	}
	var wants []plan.Want
	var steps []plan.Step
	p.state, wants, steps = t.decide(config, p.state)
	p.report.add(t, len(steps))
	p.report.Observed = p.report.Observed || t.Observed
	if p.config != nil {
		p.world.Perform(steps)
		p.compareValues(t, wants)
	} else {
		p.compareAll(t, wants, steps)
	}
	return nil
}

// checkpoint handles a key line, which contains a state of the policies. If the
// record lacks the previous tick, the replay continues from this state.
// Otherwise checkpoint compares the recorded state with the replayed state.
func (p *player) checkpoint(e entry) error {
	if !e.follows {
		p.report.Stretches++
		p.world.Forget()
		p.state = e.Before
		return nil
	}
	if p.config != nil {
		return nil
	}
	recorded, err := json.Marshal(e.Before)
	if err != nil {
		return err
	}
	replayed, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	if !bytes.Equal(recorded, replayed) {
		p.report.Drifted++
		p.state = e.Before
	}
	return nil
}

// compareAll compares all wants and steps, including the reasons.
func (p *player) compareAll(t Tick, wants []plan.Want, steps []plan.Step) {
	differ := false
	recorded, replayed := firstByKnob(t.Wants), firstByKnob(wants)
	for _, k := range bothKeys(recorded, replayed) {
		a, had := recorded[k]
		b, has := replayed[k]
		if had == has && lineOfWant(a) == lineOfWant(b) {
			continue
		}
		differ = true
		p.change(k, t, Change{Recorded: saysOf(a, had), Replayed: saysOf(b, has)})
	}
	for i := range max(len(t.Done), len(steps)) {
		var a, b doneLine
		if i < len(t.Done) {
			a = lineOfStep(t.Done[i].Step)
		}
		if i < len(steps) {
			b = lineOfStep(steps[i])
		}
		if a == b {
			continue
		}
		if !differ { // a difference in the wants explains the one in the steps
			k := a.Knob
			if k == (node.Knob{}) {
				k = b.Knob
			}
			p.change(k, t, Change{Recorded: a.String(), Replayed: b.String()})
		}
		differ = true
		break
	}
	if differ {
		p.report.Differ++
	}
}

// compareValues compares the wanted values of the knobs, without the reasons.
func (p *player) compareValues(t Tick, wants []plan.Want) {
	differ := false
	recorded, replayed := firstByKnob(t.Wants), firstByKnob(wants)
	for _, k := range bothKeys(recorded, replayed) {
		a, had := recorded[k]
		b, has := replayed[k]
		if x, y := askOf(a, had), askOf(b, has); x != y {
			differ = true
			p.change(k, t, Change{Recorded: x, Replayed: y, Reason: b.Reason})
		}
	}
	if differ {
		p.report.Differ++
	}
}

// change counts a difference in the wants for a knob. It keeps the first
// difference for the report.
func (p *player) change(k node.Knob, t Tick, c Change) {
	known := p.changes[k]
	if known == nil {
		c.Knob, c.First = k, t.Snapshot.At
		known = &c
		p.changes[k] = known
	}
	known.Ticks++
}

func (p *player) done(from *reader) Report {
	r := p.report
	r.StepsOfPolicies = p.world.Steps()
	r.Other, r.Torn, r.Skipped = p.config != nil, from.lines.torn, from.skipped
	r.Foreign, r.OtherVersion = from.foreign, from.other
	for _, k := range slices.SortedFunc(maps.Keys(p.changes), node.Knob.Compare) {
		r.Changes = append(r.Changes, *p.changes[k])
	}
	return r
}

func bothKeys(a, b map[node.Knob]plan.Want) []node.Knob {
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, in := a[k]; !in {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, node.Knob.Compare)
	return keys
}

// askOf prints the intent and the requested value of a want (see
// docs/glossary.md). If exists is false, there is no want.
func askOf(w plan.Want, exists bool) string {
	switch {
	case !exists:
		return "nothing"
	case w.Intent == plan.Set:
		return fmt.Sprintf("%q", textOf(w.Value))
	case w.Intent == plan.Pause:
		return fmt.Sprintf("%q, held back", textOf(w.Value))
	default:
		return string(w.Intent)
	}
}

// saysOf prints the same as askOf, and the owner and the reason of the want.
func saysOf(w plan.Want, exists bool) string {
	s := askOf(w, exists)
	if exists {
		s += fmt.Sprintf(" by %s: %s", w.Owner, w.Reason)
	}
	return s
}

// String prints the step, or "no step".
func (l doneLine) String() string {
	if l == (doneLine{}) {
		return "no step"
	}
	return fmt.Sprintf("%v %q -> %q by %s: %s", l.Knob, l.From, l.To, l.Owner, l.Reason)
}
