// Package concurrency holds the records, the analysis and the presentation of
// the experiment on concurrent jobs. This experiment measures how many batch
// jobs fit on a node, with which CPU limit, and what makes a job expensive. The
// package also imports the tables and logs of the published transcoding
// experiment.
package concurrency

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
)

// Kind is the kind of the experiment.
const Kind = "concurrency"

// An Experiment describes the origin of the jobs and their machine:
// experiment.json.
type Experiment struct {
	report.Header // Blocks is 1 for imported tables that name no blocks
	// Imported lists the files and folders from which the jobs were read.
	Imported []string `json:"imported,omitempty"`
	// ImportedJobs is the number of jobs that were read from them. 0 in older imports.
	ImportedJobs int  `json:"imported_jobs,omitempty"`
	Node         Node `json:"node"`
	// Nodes names the nodes of a cluster on which the lab ran the jobs.
	Nodes []string `json:"nodes,omitempty"`
	// The fields below are known only for jobs that ran in the lab.
	Fill    string        `json:"fill,omitempty"` // steady or wave
	Window  time.Duration `json:"window_ns,omitempty"`
	Warmup  time.Duration `json:"warmup_ns,omitempty"`
	Job     []string      `json:"job,omitempty"`      // command of a job
	JobWork float64       `json:"job_work,omitempty"` // frames of a job
}

// Control is the strategy that repeats the reference cell, which is one job
// without a limit. The two cells are equal, so the difference between them
// shows the noise.
const Control = "unbounded-aa"

// unlimited is the strategy of the reference cell.
const unlimited = "unbounded"

// A Node is the size of a machine on which jobs ran.
type Node struct {
	CPUs  int `json:"cpus"`  // that the kernel schedules on; 0: not known
	Cores int `json:"cores"` // fewer than CPUs where cores have sibling threads; 0: not known
}

const jobsFile = "jobs.csv"

// Create makes the folder of an experiment, its jobs and its report. It returns
// an error if the folder has a file that the experiment would replace, or if
// the jobs cannot be read back. After an error, it leaves no new file.
func Create(dir string, e Experiment, all []jobs.Job) (_ report.Findings, err error) {
	var table bytes.Buffer
	if err := jobs.WriteTable(&table, all); err != nil {
		return nil, err
	}
	if _, err := jobs.ReadTable(bytes.NewReader(table.Bytes())); err != nil {
		return nil, fmt.Errorf("make the experiment: the jobs cannot be written so that they read back: %w", err)
	}
	_, before := os.Stat(dir)
	if err := archive.Claim(dir); err != nil {
		return nil, fmt.Errorf("make the directory of the experiment: %s: %w", dir, err)
	}
	defer func() {
		if err == nil {
			return
		}
		for _, name := range []string{jobsFile, report.ExperimentFile, report.ResultFile, report.PageFile} {
			os.Remove(filepath.Join(dir, name))
		}
		if errors.Is(before, fs.ErrNotExist) {
			os.Remove(dir)
		}
	}()
	f, err := archive.OpenToAppend(filepath.Join(dir, jobsFile))
	if err == nil {
		_, err = table.WriteTo(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("save the jobs: %w", err)
	}
	e.Schema, e.Kind = report.Schema, Kind
	if err := report.WriteJSON(filepath.Join(dir, report.ExperimentFile), e); err != nil {
		return nil, err
	}
	return report.Build(dir, Open)
}

// AddJobs appends rows to the table of an experiment.
func AddJobs(dir string, all []jobs.Job) error {
	f, err := archive.OpenToAppend(filepath.Join(dir, jobsFile))
	if err != nil {
		return fmt.Errorf("save the jobs: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		err = jobs.WriteTable(f, all)
	} else if err == nil {
		err = jobs.WriteRows(f, all)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("save the jobs: %w", err)
	}
	return nil
}

// Load reads an experiment and its jobs. An experiment without a job is an error.
func Load(dir string) (Experiment, []jobs.Job, error) {
	e, raw, err := report.Read[Experiment](dir, Kind)
	if err != nil {
		return e, nil, err
	}
	table, err := fs.ReadFile(raw, jobsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil, archive.CheckData(raw, dir, jobsFile, 0)
	}
	if err != nil {
		return e, nil, fmt.Errorf("load experiment: %w", err)
	}
	if len(e.Imported) == 0 { // a killed lab leaves an incomplete last line
		table = table[:bytes.LastIndexByte(table, '\n')+1]
	}
	all, err := jobs.ReadTable(bytes.NewReader(table))
	if err != nil {
		return e, nil, fmt.Errorf("load %s: %w", filepath.Join(dir, jobsFile), err)
	}
	if e.ImportedJobs > 0 && len(all) != e.ImportedJobs {
		return e, nil, fmt.Errorf("load %s: it has %d jobs, and the import wrote %d: the file was cut off or changed", filepath.Join(dir, jobsFile), len(all), e.ImportedJobs)
	}
	return e, all, archive.CheckData(raw, dir, jobsFile, len(all))
}

// Open loads and analyses the experiment in dir.
func Open(dir string) (report.Findings, error) {
	e, all, err := Load(dir)
	if err != nil {
		return nil, err
	}
	return Analyse(e, all), nil
}
