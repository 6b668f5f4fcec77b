package report

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"tenon.sh/tenon/internal/lab/archive"
)

// Findings are the results of analysing the raw data of an experiment.
type Findings interface {
	// Result returns the content of result.json.
	Result() any
	// WriteTable prints the findings for a terminal.
	WriteTable(io.Writer) error
	// WritePage writes the findings as one HTML page that needs no other file.
	WritePage(io.Writer) error
}

// Kinds maps each kind of experiment to a function. The function loads the raw
// data of such an experiment from a directory and analyses them. The file
// experiment.json in the directory names the kind.
type Kinds map[string]func(dir string) (Findings, error)

// Rebuild analyses the experiment in dir, and writes result.json and
// report.html into dir. It needs only the raw data.
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

// Build does the same as Rebuild, for a directory whose kind is known.
func Build(dir string, open func(dir string) (Findings, error)) (Findings, error) {
	f, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := WriteJSON(filepath.Join(dir, ResultFile), f.Result()); err != nil {
		return f, err
	}
	return f, writeFile(filepath.Join(dir, PageFile), f.WritePage)
}

// kindOf returns the kind of the experiment in dir.
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
