package record

import (
	"maps"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// A world holds the values that the knobs of a recorded node would have if
// another configuration had written them.
type world struct {
	now, before map[node.Knob]node.Value
}

// see returns the recorded snapshot with the knob values of this world. A knob that is new in
// the snapshot starts with the recorded value. see forgets knobs that the snapshot lacks.
func (w *world) see(s node.Snapshot) node.Snapshot {
	if w.now == nil {
		w.now, w.before = map[node.Knob]node.Value{}, map[node.Knob]node.Value{}
	}
	for k, v := range s.Knobs.Now {
		if _, known := w.now[k]; known {
			continue
		}
		w.now[k] = v
		if before, touched := s.Knobs.Before[k]; touched {
			w.before[k] = before
		}
	}
	for k := range w.now {
		if _, still := s.Knobs.Now[k]; !still {
			delete(w.now, k)
			delete(w.before, k)
		}
	}
	s.Knobs.Now, s.Knobs.Before = maps.Clone(w.now), maps.Clone(w.before)
	return s
}

// tick applies the steps to the world, as if all of them succeeded.
func (w *world) tick(steps []plan.Step) {
	for _, s := range steps {
		if _, touched := w.before[s.Knob]; !touched && s.From != nil && !s.Knob.File.OrdersScheduler() {
			w.before[s.Knob] = s.From
		}
		if s.Release {
			delete(w.before, s.Knob)
		}
		w.now[s.Knob] = s.To
	}
}
