package jobs

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tenon.sh/tenon/internal/model/unit"
)

// A Row is a job with the line of its table.
type Row struct {
	Job  Job
	Line int
}

// ReadTable does the same as ReadRows, without the lines.
func ReadTable(r io.Reader) ([]Job, error) {
	rows, err := ReadRows(r)
	var all []Job
	for _, row := range rows {
		all = append(all, row.Job)
	}
	return all, err
}

// ReadRows reads a published table, or one that WriteTable wrote. The header
// may be missing. If the type in a published row contains "-", the row has one
// column more. Therefore ReadRows finds the column with the container's id,
// and counts the other columns from there. An error names the line.
func ReadRows(r io.Reader) ([]Row, error) {
	fault := func(err error) error { return fmt.Errorf("read the table of jobs: %w", err) }
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fault(err)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // the byte order mark of some spreadsheets
	if err := checkText(data); err != nil {
		return nil, fault(err)
	}
	in := csv.NewReader(bytes.NewReader(data))
	in.FieldsPerRecord = -1 // published rows differ in length
	in.TrimLeadingSpace = true
	head := columnNames()[:published]
	var all []Row
	for first := true; ; first = false {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fault(err)
		}
		line, _ := in.FieldPos(0)
		if first {
			isHead, err := checkHead(row)
			if err != nil {
				return nil, fault(fmt.Errorf("line %d: %w", line, err))
			}
			if isHead {
				head = row
				continue
			}
		}
		j, err := readRow(row, head)
		if err != nil {
			return nil, fault(fmt.Errorf("line %d: %w", line, err))
		}
		all = append(all, Row{j, line})
	}
}

// checkText returns an error unless the text is in UTF-8, has commas, and has
// line ends of Unix or Windows. Any other text would be read as one row, or as
// rows with wrong names.
func checkText(data []byte) error {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return errors.New("it is not text in UTF-8: save the table as CSV in UTF-8")
	}
	for i := bytes.IndexByte(data, '\r'); i >= 0 && i < len(data); {
		if i+1 < len(data) && data[i+1] != '\n' {
			return fmt.Errorf("line %d ends with CR alone: want LF or CRLF at the end of a line", 1+bytes.Count(data[:i], []byte("\n")))
		}
		next := bytes.IndexByte(data[i+1:], '\r')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	for _, c := range []string{";", "\t"} {
		if n := bytes.Count(line, []byte(c)); n >= published-1 && bytes.Count(line, []byte(",")) < n {
			return fmt.Errorf("line 1: the columns are separated by %q: want commas", c)
		}
	}
	return nil
}

// checkHead reports whether the row is the header. It returns an error for the
// header of other columns, or of the columns in another order.
func checkHead(row []string) (bool, error) {
	names := columnNames()[:published]
	if len(row) >= published && slices.Equal(row[:published], names) {
		return true, nil
	}
	known := 0
	for _, name := range names {
		if slices.Contains(row, name) {
			known++
		}
	}
	if known < 3 {
		return false, nil
	}
	return false, fmt.Errorf("the header has other columns, or another order: want %s first", strings.Join(names, ","))
}

// columnsOf returns by how many columns the row is shifted, because its type
// contains "-".
func columnsOf(row, head []string) (shift int, err error) {
	for shift = 0; shift <= maxShift && dockerID+shift < len(row); shift++ {
		if containerID.MatchString(row[dockerID+shift]) {
			if len(row) != len(head)+shift {
				return 0, fmt.Errorf("%d columns, want %d", len(row), len(head)+shift)
			}
			return shift, nil
		}
	}
	if len(row) == len(head) {
		return 0, nil
	}
	return 0, fmt.Errorf("%d columns, want %d, or up to %d more with the 64 hexadecimal digits of a container id, if the type contains -", len(row), len(head), maxShift)
}

// readRow reads a row. head has the names of all columns.
func readRow(row, head []string) (Job, error) {
	shift, err := columnsOf(row, head)
	if err != nil {
		return Job{}, err
	}
	j := Job{Precision: time.Second}
	cells := append([]string{row[0], strings.Join(row[1:2+shift], "-")}, row[2+shift:]...)
	for i, text := range cells {
		c, known := columnOf(i, head[i])
		if i < published {
			text = strings.TrimSpace(text)
		} else if !known || text == "" {
			continue
		}
		if err := c.set(&j, text); err != nil {
			return j, fmt.Errorf("column %s: %w", head[i], err)
		}
	}
	if j.Out.Before(j.In) {
		return j, fmt.Errorf("column TimeOut: the job ends %v before it begins", j.In.Sub(j.Out))
	}
	return j, nil
}

// Check returns an error if the job could not be read back after it was
// written.
func (j Job) Check() error {
	var b bytes.Buffer
	if err := WriteTable(&b, []Job{j}); err != nil {
		return err
	}
	rows, err := ReadRows(&b)
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("it reads back as %d jobs", len(rows))
	}
	return err
}

// printable replaces what a terminal would obey, and what is not UTF-8. A reason
// may quote the output of a program, and ReadTable refuses a table with a CR or
// another encoding anywhere in it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// parseCPU reads the request of a job. 0 means that it has no limit.
func parseCPU(s string) (unit.MilliCPU, error) {
	m, err := unit.ParseMilliCPU(s)
	if err != nil {
		return 0, fmt.Errorf("%w; 0 for no limit", err)
	}
	if whole, _ := unit.ParseQuantity(s, 1000, unit.Down); whole == 0 && m > 0 {
		return 0, fmt.Errorf("cpu amount %.80q: want at least a thousandth of a CPU, or 0 for no limit", s)
	}
	return m, nil
}
