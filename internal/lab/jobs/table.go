package jobs

import (
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// publishedColumns are the columns of the published table.
var publishedColumns = [...]string{"Host", "Type", "Concurrency", "CPU", "Memory", "JobID", "PodID", "JobPodID", "DockerID", "TimeIn", "TimeOut", "Source"}

// dockerID is the index of the column with the id of the container.
const dockerID = 8

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// maxShift is the largest number of dashes in the type of a published row. The
// published scripts cut the type at each of them, which gives 13 or 14 columns.
const maxShift = 2

// maxFraction is the largest number that a column may have. The cycles of a CPU
// of 5 GHz reach it in six years.
const maxFraction = 1e18

// maxTimestamp is the largest Unix time in a column. Any present time in ms is larger.
const maxTimestamp = 1 << 40

// strategies are the words that the lab writes into the column Strategy. The
// last one is the control.
var strategies = []string{"quota", "pinned", "pinned-blind", "static", "static-burst", "unbounded", "burst", "matched", "tenon", "unbounded-aa"}

// A column is one of the columns that the lab adds after the published ones.
type column struct {
	name string
	get  func(Job) string
	set  func(*Job, string) error // not called for an empty cell
}

// extras returns the columns that the lab adds.
func extras() []column {
	return []column{
		{"Strategy", func(j Job) string { return j.Extra.Strategy }, func(j *Job, s string) error {
			if !slices.Contains(strategies, s) {
				return fmt.Errorf("%.80q: want one of %s", s, strings.Join(strategies, ", "))
			}
			j.Extra.Strategy = s
			return nil
		}},
		whole("Block", func(e *Extra) *int { return &e.Block }),
		whole("Run", func(e *Extra) *int { return &e.Run }),
		{"Slice", func(j Job) string { return j.Extra.Slice.String() }, func(j *Job, s string) (err error) {
			j.Extra.Slice, err = unit.ParseCPUSet(s)
			return err
		}},
		whole("Threads", func(e *Extra) *int { return &e.Threads }),
		nanoseconds("TimeInNs", func(j *Job) *time.Time { return &j.In }),
		nanoseconds("TimeOutNs", func(j *Job) *time.Time { return &j.Out }),
		fraction("LocalJobs", func(e *Extra) *node.Maybe[float64] { return &e.LocalJobs }),
		fraction("QueueSeconds", func(e *Extra) *node.Maybe[float64] { return &e.QueueSeconds }),
		fraction("LateSeconds", func(e *Extra) *node.Maybe[float64] { return &e.LateSeconds }),
		fraction("Work", func(e *Extra) *node.Maybe[float64] { return &e.Work }),
		fraction("JobWork", func(e *Extra) *node.Maybe[float64] { return &e.JobWork }),
		fraction("CPUSeconds", func(e *Extra) *node.Maybe[float64] { return &e.CPUSeconds }),
		counter("Periods", func(e *Extra) *node.Maybe[int64] { return &e.Periods }),
		counter("ThrottledPeriods", func(e *Extra) *node.Maybe[int64] { return &e.ThrottledPeriods }),
		fraction("ThrottledSeconds", func(e *Extra) *node.Maybe[float64] { return &e.ThrottledSeconds }),
		fraction("WaitSeconds", func(e *Extra) *node.Maybe[float64] { return &e.WaitSeconds }),
		fraction("Migrations", func(e *Extra) *node.Maybe[float64] { return &e.Migrations }),
		fraction("Switches", func(e *Extra) *node.Maybe[float64] { return &e.Switches }),
		fraction("Cycles", func(e *Extra) *node.Maybe[float64] { return &e.Cycles }),
		fraction("Instructions", func(e *Extra) *node.Maybe[float64] { return &e.Instructions }),
		fraction("CacheMisses", func(e *Extra) *node.Maybe[float64] { return &e.CacheMisses }),
		counter("PeakMemory", func(e *Extra) *node.Maybe[unit.Bytes] { return &e.PeakMemory }),
		{"Unread", func(j Job) string {
			if j.Extra.Unread {
				return "1"
			}
			return ""
		}, func(j *Job, s string) error {
			if s != "0" && s != "1" {
				return fmt.Errorf("%.80q: want 1 for a void job whose log is lost or damaged, or 0", s)
			}
			j.Extra.Unread = s == "1"
			return nil
		}},
		{"Void", func(j Job) string { return printable(j.Extra.Void) }, func(j *Job, s string) error { j.Extra.Void = printable(s); return nil }},
	}
}

func whole(name string, of func(*Extra) *int) column {
	return column{name, func(j Job) string {
		if v := *of(&j.Extra); v != 0 {
			return strconv.Itoa(v)
		}
		return ""
	}, func(j *Job, s string) error { return number(of(&j.Extra))(s) }}
}

func fraction(name string, of func(*Extra) *node.Maybe[float64]) column {
	return column{name, func(j Job) string {
		if v, ok := of(&j.Extra).Value(); ok {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
		return ""
	}, func(j *Job, s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= 0 && v <= maxFraction) {
			return fmt.Errorf("%.80q: want a number from 0 to %g", s, float64(maxFraction))
		}
		*of(&j.Extra) = node.Some(v)
		return nil
	}}
}

func counter[T ~int64](name string, of func(*Extra) *node.Maybe[T]) column {
	return column{name, func(j Job) string {
		if v, ok := of(&j.Extra).Value(); ok {
			return strconv.FormatInt(int64(v), 10)
		}
		return ""
	}, func(j *Job, s string) error {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v < 0 {
			return fmt.Errorf("%.80q: want a whole number from 0", s)
		}
		*of(&j.Extra) = node.Some(T(v))
		return nil
	}}
}

// nanoseconds returns a column that has a time with its full resolution. The
// published column for this time has whole seconds.
func nanoseconds(name string, of func(*Job) *time.Time) column {
	return column{name, func(j Job) string {
		if j.Precision >= time.Second {
			return ""
		}
		return strconv.FormatInt(of(&j).UnixNano(), 10)
	}, func(j *Job, s string) error {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v < 0 {
			return fmt.Errorf("%.80q: want whole nanoseconds since 1970", s)
		}
		*of(j), j.Precision = time.Unix(0, v).UTC(), time.Nanosecond
		return nil
	}}
}

// CheckType returns an error for a type that contains "-". The published
// scripts cut the name of a pod at each "-", so they could not read such a
// type.
func CheckType(s string) error {
	if s == "" || strings.ContainsAny(s, "-_. ,\"") {
		return fmt.Errorf("type %.80q: want a word without - _ . , and blanks, because the name of a job is cut at each -", s)
	}
	return nil
}

// WriteTable writes the jobs. The published columns come first, so that a
// spreadsheet made for them can read the table.
func WriteTable(w io.Writer, all []Job) error {
	head := slices.Clone(publishedColumns[:])
	for _, c := range extras() {
		head = append(head, c.name)
	}
	out := csv.NewWriter(w)
	if err := out.Write(head); err != nil {
		return fmt.Errorf("write the table of jobs: %w", err)
	}
	out.Flush()
	return WriteRows(w, all)
}

// WriteRows writes the same rows as WriteTable, but no header.
func WriteRows(w io.Writer, all []Job) error {
	more := extras()
	out := csv.NewWriter(w)
	for _, j := range all {
		row := []string{
			j.Host, j.Type, strconv.Itoa(j.Concurrency), formatCPU(j.CPU), formatMemory(j.Memory), strconv.Itoa(j.Index), j.Pod,
			strconv.Itoa(j.Container), j.ContainerID, strconv.FormatInt(j.In.Unix(), 10), strconv.FormatInt(j.Out.Unix(), 10), printable(j.Source),
		}
		for _, c := range more {
			row = append(row, c.get(j))
		}
		if err := out.Write(row); err != nil {
			return fmt.Errorf("write the table of jobs: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write the table of jobs: %w", err)
	}
	return nil
}

func number(to *int) func(string) error {
	return func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil || v < 0 {
			return fmt.Errorf("%.80q: want a whole number from 0", s)
		}
		*to = v
		return nil
	}
}

func seconds(to *time.Time) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v < 0 || v > maxTimestamp {
			return fmt.Errorf("%.80q: want whole seconds since 1970, such as 1489746275, up to %d", s, maxTimestamp)
		}
		*to = time.Unix(v, 0).UTC()
		return nil
	}
}
