// Package promise says how much room batch work will have for some hours, and
// with which probability.
//
// The room of a node is what batch work may request on it (package overcommit).
// A promise for H hours is kept if the room is at no minute of the H hours below
// it. Package promise learns from the least room of each past hour, and corrects
// itself by the promises that were broken: an adaptive quantile
// (docs/decisions/0125-a-promise-is-an-adaptive-quantile.md).
package promise

import (
	"cmp"
	"encoding/json"
	"fmt"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Hours are the lengths of the promises, in ascending order.
var Hours = [...]int{1, 6, 24}

// Levels are the probabilities of the promises, in ascending order.
var Levels = [...]unit.Percent{80, 90, 95}

// Room is what batch work may use at one minute. An amount that is not known is
// absent.
type Room struct {
	CPU    node.Maybe[unit.MilliCPU] `json:"cpu_mcpu,omitzero"`
	Memory node.Maybe[unit.Bytes]    `json:"memory_bytes,omitzero"`
}

// Lower returns the smaller amount of each resource, or the one that is known.
func (r Room) Lower(o Room) Room {
	return Room{CPU: lower(r.CPU, o.CPU), Memory: lower(r.Memory, o.Memory)}
}

func lower[T cmp.Ordered](a, b node.Maybe[T]) node.Maybe[T] {
	x, known := a.Value()
	if y, has := b.Value(); known && has {
		return node.Some(min(x, y))
	}
	if known {
		return a
	}
	return b
}

// A Promise is the room that lasts for some hours with a probability. Each
// amount has that probability by itself.
type Promise struct {
	Hours   int                   `json:"hours"`
	Percent unit.Percent          `json:"percent"`
	CPU     Amount[unit.MilliCPU] `json:"cpu_mcpu"`
	Memory  Amount[unit.Bytes]    `json:"memory_bytes"`
}

// Code says whether an amount is promised, or why not.
type Code string

// The codes.
const (
	Known      Code = "known"
	TooFew     Code = "too-few-windows" // Windows is below Needed
	Unmeasured Code = "unmeasured"      // the room of now is not known, or was not for some minutes
)

// An Amount is the promised room of one resource.
type Amount[T unit.MilliCPU | unit.Bytes] struct {
	Code Code `json:"code"`
	// Value is 0 unless Code is Known. It is never above the room of now.
	Value T `json:"value"`
	// Windows is the number of past windows of this length on which the promise
	// rests. There is no promise before there are Needed windows.
	Windows int `json:"windows"`
	Needed  int `json:"needed"`
	// Judged is the number of promises of this kind whose end is known, Kept the
	// number of those that came true. Both cover the last four to eight weeks.
	Judged int64 `json:"judged"`
	Kept   int64 `json:"kept"`
	// SkillPercent compares these promises with a fixed quantile of past windows
	// (climatology), by their quantile loss: 100 means no loss, 0 the same loss. It
	// is absent before a promise was judged.
	SkillPercent node.Maybe[unit.Percent] `json:"skill_percent,omitzero"`
	// Better says that the skill is more than chance. If it is false, a fixed
	// quantile of the past is as good: the room has no pattern that helps.
	Better bool `json:"better"`
}

// State is what the promises of a node rest on. The zero State knows nothing.
type State struct {
	CPU    track `json:"cpu"`    // in thousandths of a CPU
	Memory track `json:"memory"` // in MiB, rounded down
}

const mib = 1 << 20

// Observe adds the room of a minute, which counts from 1970. A minute of the hour that
// has just ended does not count. If the clock was set back further, the past hours are
// forgotten, because their hours of the day may be wrong; what the promises have learnt
// stays.
func (s *State) Observe(minute int64, room Room) {
	if v, known := room.CPU.Value(); known {
		s.CPU.observe(minute, int64(v))
	}
	if v, known := room.Memory.Value(); known {
		s.Memory.observe(minute, int64(v/mib))
	}
}

// staleAfter is the number of minutes after which the last promises are too old.
const staleAfter = 5

// Promises returns the promises of a minute, by length and probability. They were
// made at the start of the hour of the last observed minute, and are bounded by
// the room of now. While that is absent, nothing is promised.
func (s *State) Promises(minute int64, now Room) []Promise {
	all := make([]Promise, 0, len(Hours)*len(Levels))
	for h, hours := range Hours {
		for l, percent := range Levels {
			all = append(all, Promise{
				Hours: hours, Percent: percent,
				CPU:    amountOf(&s.CPU, h, l, minute, now.CPU, 1),
				Memory: amountOf(&s.Memory, h, l, minute, now.Memory, mib),
			})
		}
	}
	return all
}

func amountOf[T unit.MilliCPU | unit.Bytes](t *track, h, l int, minute int64, now node.Maybe[T], scale T) Amount[T] {
	a := &t.Aims[h][l]
	out := Amount[T]{Code: Known, Windows: t.Windows[h], Needed: needed[h], Judged: a.Judged, Kept: a.Kept}
	if a.Plain > 0 {
		skill := 100 - 100*a.Loss/a.Plain
		out.SkillPercent = node.Some(unit.Percent(skill))
		out.Better = better(skill, a.Judged, Hours[h], Levels[l])
	}
	made := int64(notMade)
	if n := len(a.Open); n > 0 {
		made = promised(a.Open[n-1])
	}
	room, known := now.Value()
	switch {
	case !known || !t.Begun || minute < t.Last || minute-t.Last > staleAfter:
		out.Code = Unmeasured
	case made == notMade:
		out.Code = TooFew
	default:
		out.Value = max(min(T(made)*scale, room), 0)
	}
	return out
}

// better reports whether a skill is more than chance. The noise of a skill falls
// with the root of the number of promises that the level expects to be broken,
// counted in windows that do not overlap. The factor is from white noise, where
// any skill is chance (TestWhiteNoiseHasNoPattern).
func better(skill, judged int64, hours int, percent unit.Percent) bool {
	const chance = 60
	return skill > 0 && skill*skill*judged*int64(100-percent) >= chance*chance*100*int64(hours)
}

// Save returns the state in the form that Restore reads.
func (s *State) Save() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("save promises: %w", err)
	}
	return text, nil
}

// Restore reads a saved state. It refuses a state that Observe could not have
// made.
func Restore(text []byte) (State, error) {
	var s State
	if err := json.Unmarshal(text, &s); err != nil {
		return State{}, fmt.Errorf("read saved promises: %w", err)
	}
	if err := s.CPU.check(); err != nil {
		return State{}, fmt.Errorf("read saved promises of CPU: %w", err)
	}
	if err := s.Memory.check(); err != nil {
		return State{}, fmt.Errorf("read saved promises of memory: %w", err)
	}
	return s, nil
}
