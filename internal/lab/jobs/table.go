package jobs

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// published is the number of columns of the published table.
const published = 12

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

// A column is one of the columns of a table.
type column struct {
	name string
	get  func(Job) string
	set  func(*Job, string) error // of a column that the lab adds: not called for an empty cell
}

// columns has the published columns, and after them those that the lab adds.
var columns = []column{
	value("Host", func(j *Job) *string { return &j.Host }, same, readName),
	value("Type", func(j *Job) *string { return &j.Type }, same, readName),
	value("Concurrency", func(j *Job) *int { return &j.Concurrency }, strconv.Itoa, readWhole),
	value("CPU", func(j *Job) *unit.MilliCPU { return &j.CPU }, formatCPU, parseCPU),
	value("Memory", func(j *Job) *unit.Bytes { return &j.Memory }, formatMemory, parseMemory),
	value("JobID", func(j *Job) *int { return &j.Index }, strconv.Itoa, readWhole),
	value("PodID", func(j *Job) *string { return &j.Pod }, same, readText),
	value("JobPodID", func(j *Job) *int { return &j.Container }, strconv.Itoa, readWhole),
	value("DockerID", func(j *Job) *string { return &j.ContainerID }, same, readText),
	value("TimeIn", func(j *Job) *time.Time { return &j.In }, showSeconds, readSeconds),
	value("TimeOut", func(j *Job) *time.Time { return &j.Out }, showSeconds, readSeconds),
	value("Source", func(j *Job) *string { return &j.Source }, printable, readText),

	value("Strategy", func(j *Job) *string { return &j.Extra.Strategy }, same, readStrategy),
	value("Block", func(j *Job) *int { return &j.Extra.Block }, showSome, readWhole),
	value("Run", func(j *Job) *int { return &j.Extra.Run }, showSome, readWhole),
	value("Slice", func(j *Job) *unit.CPUSet { return &j.Extra.Slice }, unit.CPUSet.String, unit.ParseCPUSet),
	value("Threads", func(j *Job) *int { return &j.Extra.Threads }, showSome, readWhole),
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
	value("Unread", func(j *Job) *bool { return &j.Extra.Unread }, showUnread, readUnread),
	value("Void", func(j *Job) *string { return &j.Extra.Void }, printable, func(s string) (string, error) { return printable(s), nil }),
}

// value returns a column of one field of a job.
func value[T any](name string, of func(*Job) *T, show func(T) string, read func(string) (T, error)) column {
	return column{name, func(j Job) string { return show(*of(&j)) }, func(j *Job, s string) error {
		v, err := read(s)
		if err == nil {
			*of(j) = v
		}
		return err
	}}
}

func fraction(name string, of func(*Extra) *node.Maybe[float64]) column {
	return value(name, func(j *Job) *node.Maybe[float64] { return of(&j.Extra) }, showFraction, readFraction)
}

func counter[T ~int64](name string, of func(*Extra) *node.Maybe[T]) column {
	return value(name, func(j *Job) *node.Maybe[T] { return of(&j.Extra) }, showCount[T], readCount[T])
}

// columnNames returns the names of all columns.
func columnNames() []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// columnOf returns column i of a table, whose name is given. It returns false for a
// name that the lab does not know.
func columnOf(i int, name string) (column, bool) {
	if i < published {
		return columns[i], true
	}
	for _, c := range columns[published:] {
		if c.name == name {
			return c, true
		}
	}
	return column{}, false
}

func same(s string) string { return s }

func readText(s string) (string, error) {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("%.80q: want text without control characters", s)
	}
	return s, nil
}

func readName(s string) (string, error) {
	if s == "" {
		return "", errors.New("it is empty")
	}
	return readText(s)
}

func readStrategy(s string) (string, error) {
	if !slices.Contains(strategies, s) {
		return "", fmt.Errorf("%.80q: want one of %s", s, strings.Join(strategies, ", "))
	}
	return s, nil
}

// showSome shows a number that is not 0.
func showSome(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func readWhole(s string) (int, error) {
	v, err := strconv.Atoi(s)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("%.80q: want a whole number from 0", s)
	}
	return v, nil
}

func showSeconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func readSeconds(s string) (time.Time, error) {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 || v > maxTimestamp {
		return time.Time{}, fmt.Errorf("%.80q: want whole seconds since 1970, such as 1489746275, up to %d", s, maxTimestamp)
	}
	return time.Unix(v, 0).UTC(), nil
}

func showFraction(m node.Maybe[float64]) string {
	v, ok := m.Value()
	if !ok {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func readFraction(s string) (node.Maybe[float64], error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v <= maxFraction) {
		return node.Maybe[float64]{}, fmt.Errorf("%.80q: want a number from 0 to %g", s, float64(maxFraction))
	}
	return node.Some(v), nil
}

func showCount[T ~int64](m node.Maybe[T]) string {
	v, ok := m.Value()
	if !ok {
		return ""
	}
	return strconv.FormatInt(int64(v), 10)
}

func readCount[T ~int64](s string) (node.Maybe[T], error) {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 {
		return node.Maybe[T]{}, fmt.Errorf("%.80q: want a whole number from 0", s)
	}
	return node.Some(T(v)), nil
}

func showUnread(unread bool) string {
	if unread {
		return "1"
	}
	return ""
}

func readUnread(s string) (bool, error) {
	if s != "0" && s != "1" {
		return false, fmt.Errorf("%.80q: want 1 for a void job whose log is lost or damaged, or 0", s)
	}
	return s == "1", nil
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
	out := csv.NewWriter(w)
	if err := out.Write(columnNames()); err != nil {
		return fmt.Errorf("write the table of jobs: %w", err)
	}
	out.Flush()
	return WriteRows(w, all)
}

// WriteRows writes the same rows as WriteTable, but no header.
func WriteRows(w io.Writer, all []Job) error {
	out := csv.NewWriter(w)
	row := make([]string, len(columns))
	for _, j := range all {
		for i, c := range columns {
			row[i] = c.get(j)
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
