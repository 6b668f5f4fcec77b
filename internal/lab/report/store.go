package report

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/load/hlog"
)

// Schema is the version of the files that this package writes and reads.
const Schema = 1

// The files of an experiment's directory.
const (
	ExperimentFile = archive.ExperimentFile
	ResultFile     = "result.json"
	PageFile       = "report.html"
	RunsFile       = "runs.jsonl" // of kinds whose runs have no histograms
	runsDir        = "runs"
)

// Create makes the directory of an experiment and writes experiment.json. A
// second call replaces experiment.json and does not change the runs.
func Create(dir string, e Headed) error {
	if err := archive.MakeFolder(dir, "."); err != nil {
		return err
	}
	return WriteJSON(filepath.Join(dir, ExperimentFile), e)
}

// SaveRun writes runs/NNN-MODE.hlog and then runs/NNN-MODE.json. Each file is
// written atomically, so a run whose JSON file exists is complete.
func SaveRun(dir string, whole Record) error {
	r := whole.Common()
	if err := r.check(); err != nil {
		return fmt.Errorf("save run %d: %w", r.Index, err)
	}
	if err := archive.MakeFolder(dir, runsDir); err != nil {
		return fmt.Errorf("save run %d: %w", r.Index, err)
	}
	base := filepath.Join(dir, runsDir, fmt.Sprintf("%03d-%s", r.Index, r.Mode))
	if r.Log != nil {
		if err := writeFile(base+".hlog", r.Log); err != nil {
			return err
		}
	}
	return WriteJSON(base+".json", whole)
}

// AddLines appends records to a file of an experiment, a line of JSON for each.
func AddLines[R any](dir, name string, records ...R) error {
	f, err := archive.OpenToAppend(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	b := bufio.NewWriter(f)
	lines := json.NewEncoder(b)
	for _, r := range records {
		if err = lines.Encode(r); err != nil {
			break
		}
	}
	if err := errors.Join(err, b.Flush(), f.Close()); err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	return nil
}

// Read reads the experiment.json of a kind, from the folder of the experiment or
// from its archive. raw has the raw data beside it.
func Read[E any, P interface {
	*E
	Headed
}](dir, want string) (e E, raw fs.FS, err error) {
	raw, data, err := archive.OpenExperiment(dir)
	if err != nil {
		return e, nil, err
	}
	e, err = ParseExperiment[E](data)
	if is := P(&e).Head().Kind; err == nil && is != want {
		err = fmt.Errorf("kind %.80q: want %s", is, want)
	}
	if err != nil {
		return e, nil, fmt.Errorf("load %s: %w", filepath.Join(dir, ExperimentFile), err)
	}
	return e, raw, nil
}

// LoadLines reads an experiment and the records of one of its files, one on each
// line. A killed lab leaves an incomplete last line, which is ignored. An
// experiment without a complete line is an error. check may refuse a record; it
// may be nil.
func LoadLines[E, R any, P interface {
	*E
	Headed
}](dir, kind, name string, check func(R) error) (E, []R, error) {
	e, raw, err := Read[E, P](dir, kind)
	if err != nil {
		return e, nil, err
	}
	lines, err := fs.ReadFile(raw, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, nil, fmt.Errorf("load experiment: %w", err)
	}
	var records []R
	for {
		line, rest, complete := bytes.Cut(lines, []byte("\n"))
		if !complete {
			return e, records, archive.CheckData(raw, dir, name, len(records))
		}
		var r R
		err := json.Unmarshal(line, &r)
		if err == nil && check != nil {
			err = check(r)
		}
		if err != nil {
			return e, nil, fmt.Errorf("load %s: line %d: %w", filepath.Join(dir, name), len(records)+1, err)
		}
		records, lines = append(records, r), rest
	}
}

// Load reads an experiment and its finished runs, from its archive or from its folder.
// The runs are in the order of their index. If an experiment was interrupted, Load
// skips incomplete files. If a file cannot be read, or there is no run, Load fails.
func Load[E, R any, P interface {
	*R
	Record
}](dir string) (E, []R, error) {
	var e E
	raw, data, err := archive.OpenExperiment(dir)
	if err != nil {
		return e, nil, err
	}
	if e, err = ParseExperiment[E](data); err != nil {
		return e, nil, fmt.Errorf("load %s: %w", filepath.Join(dir, ExperimentFile), err)
	}
	names, err := fs.Glob(raw, path.Join(runsDir, "*.json"))
	if err != nil {
		return e, nil, fmt.Errorf("load experiment: %w", err)
	}
	var runs []R
	for _, name := range names {
		var r R
		if err := loadRun(raw, name, P(&r)); err != nil {
			return e, nil, fmt.Errorf("load %s: %w", filepath.Join(dir, name), err)
		}
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b R) int { return cmp.Compare(P(&a).Common().Index, P(&b).Common().Index) })
	return e, runs, archive.CheckData(raw, dir, runsDir, len(runs))
}

func loadRun(raw fs.FS, name string, whole Record) error {
	data, err := fs.ReadFile(raw, name)
	if err != nil {
		return err
	}
	if err := ParseRun(data, whole); err != nil {
		return err
	}
	log, err := raw.Open(strings.TrimSuffix(name, ".json") + ".hlog")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // wrk gives percentiles and no histogram
	}
	if err != nil {
		return err
	}
	defer log.Close()
	whole.Common().Histogram, _, err = hlog.Read(log)
	return err
}

// ParseExperiment reads an experiment.json of this schema.
func ParseExperiment[E any](data []byte) (E, error) {
	var e E
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return e, err
	}
	if head.Schema != Schema {
		return e, fmt.Errorf("schema %d: this version of tenon reads schema %d", head.Schema, Schema)
	}
	return e, json.Unmarshal(data, &e)
}

// ParseRun reads the JSON of a run into the given record.
func ParseRun(data []byte, whole Record) error {
	if err := json.Unmarshal(data, whole); err != nil {
		return err
	}
	return whole.Common().check()
}

// check returns an error for values that would lead to an invalid file name or
// an empty comparison.
func (r Run) check() error {
	odd := func(c rune) bool { return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') }
	switch {
	case r.Mode == "" || strings.ContainsFunc(string(r.Mode), odd):
		return fmt.Errorf("mode %.80q: want lower-case letters, digits and dashes", r.Mode)
	case r.Index < 0 || r.Block < 0:
		return fmt.Errorf("index %d, block %d: want no negative number", r.Index, r.Block)
	case r.Length <= 0 || r.Length > 24*time.Hour:
		return fmt.Errorf("length %v: want more than 0 and at most 24h", r.Length)
	}
	return nil
}

// WriteJSON writes a JSON file atomically.
func WriteJSON(path string, v any) error {
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

// writeFile writes path atomically: it writes a temporary file and renames it.
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
