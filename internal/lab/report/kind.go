package report

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"tenon.sh/tenon/internal/lab/archive"
)

// Findings are the result of an experiment: the analysed raw data.
type Findings interface {
	// Result is the content of result.json.
	Result() any
	// WriteTable prints the findings for a terminal.
	WriteTable(io.Writer) error
	// WritePage writes them as one HTML page that needs nothing else.
	WritePage(io.Writer) error
}

// Kinds holds, for each kind of experiment, a function that loads and analyses
// its raw data from a directory. The experiment.json of a directory names its
// kind.
type Kinds map[string]func(dir string) (Findings, error)

// Rebuild analyses the experiment in dir, and writes result.json and
// report.html into it. It needs nothing but the raw data.
func (k Kinds) Rebuild(dir string) (Findings, error) {
	kind, err := kindOf(dir)
	if err != nil {
		return nil, err
	}
	open, ok := k[kind]
	if !ok {
		return nil, fmt.Errorf("load experiment: %s is of kind %q, which this version of tenon does not know", dir, kind)
	}
	return Build(dir, open)
}

// Build is Rebuild for a directory whose kind is known.
func Build(dir string, open func(dir string) (Findings, error)) (Findings, error) {
	f, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := WriteJSON(filepath.Join(dir, resultFile), f.Result()); err != nil {
		return f, err
	}
	return f, writeFile(filepath.Join(dir, pageFile), f.WritePage)
}

// kindOf is the kind of the experiment in dir.
func kindOf(dir string) (string, error) {
	var e struct {
		Kind string `json:"kind"`
	}
	_, data, err := archive.OpenExperiment(dir)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return "", fmt.Errorf("load %s: %w", filepath.Join(dir, ExperimentFile), err)
	}
	return e.Kind, nil
}
