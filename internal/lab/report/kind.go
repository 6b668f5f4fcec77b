package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/page"
)

// Findings are the results of analysing the raw data of an experiment.
type Findings interface {
	// Result returns the content of result.json.
	Result() any
	// Page returns what a reader is shown, in a terminal or in report.html.
	Page() page.Page
}

// Kinds maps each kind of experiment to a function. The function loads the raw
// data of such an experiment from a directory and analyses them. The file
// experiment.json in the directory names the kind.
type Kinds map[string]func(dir string) (Findings, error)

// Rebuild analyses the experiment in dir, and writes result.json and
// report.html into dir. It needs only the raw data. If KeepsResult holds for dir,
// it does not write result.json.
func (k Kinds) Rebuild(dir string) (Findings, error) {
	kind, err := KindOf(dir)
	if err != nil {
		return nil, err
	}
	open, ok := k[kind]
	if !ok {
		return nil, fmt.Errorf("load experiment: %s is of kind %.80q, which this version of tenon does not know", dir, kind)
	}
	if KeepsResult(dir) {
		f, err := open(dir)
		if err != nil {
			return nil, err
		}
		return f, writeFile(filepath.Join(dir, PageFile), f.Page().WriteHTML)
	}
	return Build(dir, open)
}

// KeepsResult reports whether Rebuild leaves the result.json in dir as it is: the
// experiment is packed, so result.json is the record of what the version of that
// day found. A later version may judge the same data differently.
func KeepsResult(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, ResultFile))
	return err == nil && archive.Exists(dir)
}

// Build analyses the experiment in dir, and writes result.json and report.html.
func Build(dir string, open func(dir string) (Findings, error)) (Findings, error) {
	f, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := WriteJSON(filepath.Join(dir, ResultFile), f.Result()); err != nil {
		return f, err
	}
	return f, writeFile(filepath.Join(dir, PageFile), f.Page().WriteHTML)
}

// KindOf returns the kind of the experiment in dir.
func KindOf(dir string) (string, error) {
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
