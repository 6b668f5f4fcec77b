package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/report"
)

// A Line connects the lab with the process on a node.
type Line interface {
	// Say sends a line and returns the lines of the answer.
	Say(line string) ([]string, error)
	// Close ends the connection, and with it the process.
	Close()
}

// clockQuestions is how often the time of the node is asked. The fastest answer
// counts.
const clockQuestions = 8

// A Remote is the switcher of a node.
type Remote struct {
	line     Line
	progress func([]Progress) error // gets the progress of each reading, with times of the lab
	ahead    time.Duration          // time of the lab minus time of the node
	trip     time.Duration          // the shortest time from a question to its answer
	writes   []string
	faults   []string
}

// OpenRemote gives the process on a node its order, and compares the clocks. here says
// that the lab runs on that node, so that there is one clock. If it fails, it closes
// the line.
func OpenRemote(line Line, o Order, here bool, progress func([]Progress) error) (_ *Remote, err error) {
	defer func() {
		if err != nil {
			line.Close()
		}
	}()
	r := &Remote{line: line, progress: progress}
	o.Protocol = protocol
	if _, _, err := r.ask(o); err != nil {
		return nil, err
	}
	for i := range clockQuestions {
		a, asked, err := r.ask(question{Clock: true})
		if err != nil {
			return nil, err
		}
		trip := time.Since(asked)
		if i > 0 && trip >= r.trip {
			continue
		}
		if r.trip = trip; !here {
			r.ahead = asked.Add(trip / 2).Sub(a.At)
		}
	}
	return r, nil
}

// Uncertainty is how far the times of a node may be from those of the lab: half of the
// time from a question to its answer.
func (r *Remote) Uncertainty() time.Duration { return r.trip / 2 }

// ask asks a question. asked is the time of the lab when it did.
func (r *Remote) ask(q any) (a answer, asked time.Time, err error) {
	text, err := json.Marshal(q)
	if err != nil {
		return a, asked, err
	}
	asked = time.Now()
	lines, err := r.line.Say(string(text))
	switch {
	case err != nil:
	case len(lines) != 1:
		err = fmt.Errorf("it answers with %d lines: %.300q", len(lines), lines)
	default:
		err = json.Unmarshal([]byte(lines[0]), &a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return a, asked, fmt.Errorf("the process that changes the modes on the node: %w", err)
	}
	return a, asked, nil
}

// Enter changes the mode.
func (r *Remote) Enter(_ context.Context, mode report.Mode) error {
	_, _, err := r.ask(question{Enter: mode})
	return err
}

// Reading asks for the counters. Their time lies between question and answer, so a
// part of a turn between two readings never reaches into the turns beside it, however
// the clocks differ.
func (r *Remote) Reading() (Reading, error) {
	a, asked, err := r.ask(question{})
	if err == nil && a.Reading == nil {
		err = errors.New("the process that changes the modes on the node: an answer has no counters")
	}
	if err != nil {
		return Reading{}, err
	}
	answered := time.Now()
	a.Reading.At = a.At.Add(r.ahead)
	if a.Reading.At.Before(asked) {
		a.Reading.At = asked
	}
	if a.Reading.At.After(answered) {
		a.Reading.At = answered
	}
	for i := range a.Progress {
		a.Progress[i].Written = a.Progress[i].Written.Add(r.ahead)
	}
	if r.progress != nil {
		err = r.progress(a.Progress)
	}
	return *a.Reading, err
}

// Others watches for so long what other programs do on the node.
func (r *Remote) Others(watch time.Duration) (report.Others, error) {
	a, _, err := r.ask(question{Watch: watch})
	if err == nil && a.Others == nil {
		err = errors.New("the process that changes the modes on the node: an answer does not say who uses the node")
	}
	if err != nil {
		return report.Others{}, err
	}
	return *a.Others, nil
}

// Close asks the process to put everything back, and ends it.
func (r *Remote) Close() error {
	defer r.line.Close()
	a, _, err := r.ask(question{Close: true})
	r.writes, r.faults = a.Writes, a.Faults
	return err
}

// Report returns the writes and the faults of Tenon's policies.
func (r *Remote) Report() (writes, faults []string) { return r.writes, r.faults }
