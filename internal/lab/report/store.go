package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/load"
)

// Schema is the version of the files that this package writes and reads.
const Schema = 1

// The files of an experiment's directory.
const (
	experimentFile = "experiment.json"
	resultFile     = "result.json"
	pageFile       = "report.html"
	runsDir        = "runs"
)

// Create makes the directory of an experiment and writes experiment.json.
// Calling it again replaces that file and keeps the runs.
func Create(dir string, e Experiment) error {
	e.Schema = Schema
	if err := os.MkdirAll(filepath.Join(dir, runsDir), 0o755); err != nil {
		return fmt.Errorf("make the directory of the experiment: %w", err)
	}
	return writeJSON(filepath.Join(dir, experimentFile), e)
}

// SaveRun writes runs/NNN-MODE.hlog and then runs/NNN-MODE.json. Both appear
// whole or not at all, and a run whose JSON exists is complete.
func SaveRun(dir string, r Run) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("save run %d: %w", r.Index, err)
	}
	base := filepath.Join(dir, runsDir, fmt.Sprintf("%03d-%s", r.Index, r.Mode))
	if r.Log != nil {
		if err := writeFile(base+".hlog", r.Log); err != nil {
			return err
		}
	}
	return writeJSON(base+".json", r)
}

// Load reads an experiment and its finished runs in the order of their index.
// What an interrupted experiment left unfinished is skipped; a file that is
// there but cannot be read is an error.
func Load(dir string) (Experiment, []Run, error) {
	var e Experiment
	data, err := os.ReadFile(filepath.Join(dir, experimentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil, fmt.Errorf("load experiment: %s has no %s; is it the directory of an experiment?", dir, experimentFile)
	}
	if err != nil {
		return e, nil, fmt.Errorf("load experiment: %w", err)
	}
	if e, err = parseExperiment(data); err != nil {
		return e, nil, fmt.Errorf("load %s: %w", filepath.Join(dir, experimentFile), err)
	}
	names, err := filepath.Glob(filepath.Join(dir, runsDir, "*.json"))
	if err != nil {
		return e, nil, fmt.Errorf("load experiment: %w", err)
	}
	var runs []Run
	for _, name := range names {
		r, err := loadRun(name)
		if err != nil {
			return e, nil, fmt.Errorf("load %s: %w", name, err)
		}
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return cmp.Compare(a.Index, b.Index) })
	return e, runs, nil
}

func loadRun(name string) (Run, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return Run{}, err
	}
	r, err := parseRun(data)
	if err != nil {
		return Run{}, err
	}
	log, err := os.Open(strings.TrimSuffix(name, ".json") + ".hlog")
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil // wrk gives percentiles but no histogram
	}
	if err != nil {
		return Run{}, err
	}
	defer log.Close()
	r.Histogram, _, err = load.ReadLog(log)
	return r, err
}

// Build analyses the experiment in dir, and writes result.json and
// report.html into it. It needs nothing but the raw data.
func Build(dir string) (Result, error) { return build(dir, Load, Analyse, WriteHTML) }

// build analyses what load finds in dir, and writes the result and the page.
func build[E, D, R any](dir string, load func(string) (E, D, error), analyse func(E, D) R, page func(io.Writer, R, D) error) (R, error) {
	e, data, err := load(dir)
	if err != nil {
		var none R
		return none, err
	}
	r := analyse(e, data)
	if err := writeJSON(filepath.Join(dir, resultFile), r); err != nil {
		return r, err
	}
	return r, writeFile(filepath.Join(dir, pageFile), func(w io.Writer) error { return page(w, r, data) })
}

func parseExperiment(data []byte) (Experiment, error) {
	var e Experiment
	if err := json.Unmarshal(data, &e); err != nil {
		return e, err
	}
	if e.Schema != Schema {
		return e, fmt.Errorf("schema %d: this version of tenon reads schema %d", e.Schema, Schema)
	}
	return e, nil
}

func parseRun(data []byte) (Run, error) {
	var r Run
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	return r, r.check()
}

// check refuses what would make a strange file name or an empty comparison.
func (r Run) check() error {
	odd := func(c rune) bool { return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') }
	switch {
	case r.Mode == "" || strings.ContainsFunc(string(r.Mode), odd):
		return fmt.Errorf("mode %q: want lower-case letters, digits and dashes", r.Mode)
	case r.Index < 0 || r.Block < 0:
		return fmt.Errorf("index %d, block %d: want no negative number", r.Index, r.Block)
	case r.Length <= 0 || r.Length > 24*time.Hour:
		return fmt.Errorf("length %v: want more than 0 and at most 24h", r.Length)
	}
	return nil
}

func writeJSON(path string, v any) error {
	return writeFile(path, func(w io.Writer) error {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("encode %s: %w", path, err)
		}
		_, err := b.WriteTo(w)
		return err
	})
}

// writeFile writes path whole or not at all: beside it first, then renamed.
func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
