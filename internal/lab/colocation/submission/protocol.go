// Package submission makes one file from a colocation experiment that followed
// a fixed protocol. With this file, people submit what they measured on
// machines that this project does not have. The file contains raw histograms
// and the relevant facts about the machine. It contains nothing that identifies
// the owner of the machine, or the place where it is.
package submission

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
)

// ProtocolFile is the file of the protocol in the folder of an experiment. It is
// written before the first run.
const ProtocolFile = "protocol.json"

// A Protocol defines what will run, and what results are expected. It is
// written before anything is measured.
type Protocol struct {
	Version    int           `json:"version"`
	Written    time.Time     `json:"written"`
	Modes      []report.Mode `json:"modes"`
	Blocks     int           `json:"blocks"`
	Duration   time.Duration `json:"duration_ns"` // of the measured part of a run
	Most       time.Duration `json:"most_ns"`     // of the whole experiment
	Margin     float64       `json:"margin"`
	Load       float64       `json:"load_percent"`
	Hypotheses []Hypothesis  `json:"hypotheses"`
}

// A Sign is the direction in which a ratio is expected.
type Sign string

// The signs.
const (
	Above  Sign = "above"  // the ratio is above Limit
	Below  Sign = "below"  // the ratio is below Limit
	Within Sign = "within" // the ratio is between 1/Limit and Limit
)

// A Hypothesis is an expectation of the protocol: the ratio of a measure
// between two modes.
type Hypothesis struct {
	Name    string      `json:"name"`
	Measure string      `json:"measure"` // p90, waiting or frames
	Mode    report.Mode `json:"mode"`
	To      report.Mode `json:"to"`
	Sign    Sign        `json:"sign"`
	Limit   float64     `json:"limit"`
}

// Fixed returns the present protocol. It has six modes and thirty blocks,
// because a margin of 3 % needs that many blocks. On the published machine the
// protocol takes 27 minutes.
func Fixed() Protocol {
	return Protocol{
		Version: 1,
		Modes:   []report.Mode{report.Exclusive, report.ExclusiveAA, report.ExclusiveWarm, report.Default, report.Burstable, report.Tenon},
		Blocks:  30, Duration: 5 * time.Second, Most: 30 * time.Minute, Margin: 1.03, Load: 30,
		Hypotheses: []Hypothesis{
			{"requests make the service wait", "waiting", report.Burstable, report.Tenon, Above, 5},
			{"BestEffort pods wait as under Tenon", "waiting", report.Default, report.Tenon, Within, 1.10},
			{"BestEffort pods answer as under Tenon", "p90", report.Default, report.Tenon, Within, 1.03},
			{"Tenon answers as an awake CPU alone", "p90", report.Tenon, report.ExclusiveWarm, Below, 1.03},
			{"Tenon does the work of BestEffort pods", "frames", report.Tenon, report.Default, Above, 0.98},
		},
	}
}

// client is the load generator of the protocol.
const client = "tenon"

// Fits returns an error if a submission would be refused, as far as this is
// known before the first run.
func (p Protocol) Fits(private Private) error {
	e := colocation.Experiment{Experiment: report.Experiment{
		Header: report.Header{Started: time.Now(), Modes: p.Modes, Ended: report.EndTime, Versions: map[string]string{"nginx": "", "ffmpeg": ""}}, Client: client,
	}}
	err := errors.Join(private.check("protocol", p), private.check("experiment", experimentOf(e, private)))
	for _, m := range p.Modes {
		r := report.Run{Mode: m, Void: []string{""}, Errors: map[string]int{"": 1}}
		err = errors.Join(err, private.check("run", runOf(colocation.Run{Run: r})))
	}
	return err
}

// Write writes the protocol into the folder of an experiment that is about to
// begin.
func (p Protocol) Write(dir string, now time.Time) error {
	p.Written = now.UTC().Truncate(time.Second)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the protocol: %w", err)
	}
	return report.WriteJSON(filepath.Join(dir, ProtocolFile), p)
}

// Withdraw removes what is left of an experiment that ended without a run: the
// protocol and the record. If the directory is then empty, Withdraw removes it,
// too.
func Withdraw(dir string) {
	if err := os.Remove(filepath.Join(dir, "runs")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return // the directory contains a part of a run
	}
	for _, name := range []string{report.ExperimentFile, ProtocolFile, ""} {
		_ = os.Remove(filepath.Join(dir, name)) // files that remain are not of this experiment
	}
}

// readProtocol reads the protocol of an experiment.
func readProtocol(dir string) (Protocol, error) {
	var p Protocol
	data, err := os.ReadFile(filepath.Join(dir, ProtocolFile))
	if err != nil {
		return p, fmt.Errorf("read the protocol: %w: only an experiment that tenon lab submit ran can be submitted", err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("read %s: %w", filepath.Join(dir, ProtocolFile), err)
	}
	return p, nil
}

// check returns an error if an experiment did not follow the protocol, or if
// this version has another protocol.
func (p Protocol) check(e colocation.Experiment) error {
	fixed := Fixed()
	switch {
	case p.Version != fixed.Version:
		return fmt.Errorf("protocol %d: this version of tenon has protocol %d", p.Version, fixed.Version)
	case !slices.Equal(p.Modes, fixed.Modes) || p.Blocks != fixed.Blocks || p.Duration != fixed.Duration || p.Most != fixed.Most ||
		p.Margin != fixed.Margin || p.Load != fixed.Load || !slices.Equal(p.Hypotheses, fixed.Hypotheses):
		return fmt.Errorf("protocol %d was changed", p.Version)
	case !slices.Equal(e.Modes, p.Modes) || e.Blocks != p.Blocks || e.Duration != p.Duration || e.Margin != p.Margin || e.LoadPercent != p.Load:
		return fmt.Errorf("the experiment did not run by protocol %d: %d modes, %d blocks of %v, margin %v, load %v %%", p.Version, len(e.Modes), e.Blocks, e.Duration, e.Margin, e.LoadPercent)
	case p.Written.IsZero() || e.Started.Truncate(time.Second).Before(p.Written.Truncate(time.Second)):
		return fmt.Errorf("the protocol was written at %v, after the experiment began at %v", p.Written.Format(time.DateTime), e.Started.Format(time.DateTime))
	case e.Kind != colocation.Kind || e.Kubernetes != nil || len(e.Tenond) > 0:
		return fmt.Errorf("protocol %d is a colocation experiment on one machine, with the loop of the lab", p.Version)
	}
	return nil
}
