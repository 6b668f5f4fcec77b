// Package trace reads the past of nodes from a table of comma-separated values, whose
// columns a mapping names.
package trace

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/unit"
)

// A field is what a column of a table may be.
type field string

const (
	fieldTime     field = "time"
	fieldNode     field = "node"
	fieldPool     field = "pool"
	fieldCPU      field = "cpu"
	fieldCapacity field = "capacity"
	fieldMemory   field = "memory"
	fieldSize     field = "memory-capacity"
)

// percent is the unit of a use that is a share of the capacity.
const percent = "%"

// units are the units of each field, and their size: of a time in milliseconds, of CPU
// in thousandths, of memory in bytes. The first one is the default.
var units = map[field][]struct {
	name string
	of   float64
}{
	fieldTime:     {{"s", 1000}, {"ms", 1}, {"us", 0.001}, {"min", 60_000}, {"rfc3339", 0}},
	fieldNode:     nil,
	fieldPool:     nil,
	fieldCPU:      {{"cpus", 1000}, {"m", 1}, {percent, 0}},
	fieldCapacity: {{"cpus", 1000}, {"m", 1}},
	fieldMemory:   {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {percent, 0}},
	fieldSize:     {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}},
}

// fields are the fields in the order of an error.
var fields = []field{fieldTime, fieldNode, fieldPool, fieldCPU, fieldCapacity, fieldMemory, fieldSize}

// A column is where a field is, or which value all lines have.
type column struct {
	name  string // in the first line, or a number from 1 on
	fixed bool   // the name is the value
	unit  string
	size  float64
	at    int // the place in a line
}

// A Mapping says which columns have what.
type Mapping struct{ columns map[field]*column }

// ParseMapping reads a mapping such as time=ts:ms,node=machine,cpu=util:%,capacity=@96.
// Each entry has a field, the name of a column or its number from 1 on, and a unit. A
// name after @ is no column but the value of all lines.
func ParseMapping(text string) (Mapping, error) {
	m := Mapping{map[field]*column{}}
	for entry := range strings.SplitSeq(text, ",") {
		key, name, is := strings.Cut(strings.TrimSpace(entry), "=")
		of := field(key)
		known, has := units[of]
		switch {
		case !is || !has:
			return m, fmt.Errorf("%q: want FIELD=COLUMN, with a field of %s", entry, listOf(fields))
		case m.columns[of] != nil:
			return m, fmt.Errorf("%q: there are two columns for %s", entry, of)
		}
		c := &column{name: name}
		if c.name, c.fixed = strings.CutPrefix(name, "@"); len(known) > 0 {
			c.unit, c.size = known[0].name, known[0].of
			if before, after, is := cutLast(c.name, ':'); is {
				i := slices.IndexFunc(known, func(u struct {
					name string
					of   float64
				}) bool {
					return u.name == after
				})
				if i < 0 {
					return m, fmt.Errorf("%q: no unit %q of %s", entry, after, of)
				}
				c.name, c.unit, c.size = before, known[i].name, known[i].of
			}
		}
		if c.name == "" {
			return m, fmt.Errorf("%q: the column has no name", entry)
		}
		m.columns[of] = c
	}
	for _, of := range []field{fieldTime, fieldCPU, fieldCapacity} {
		if m.columns[of] == nil {
			return m, fmt.Errorf("%s has no column", of)
		}
	}
	if memory := m.columns[fieldMemory]; memory != nil && m.columns[fieldSize] == nil {
		return m, fmt.Errorf("%s has a column, and %s has none", fieldMemory, fieldSize)
	}
	if m.columns[fieldTime].fixed || m.columns[fieldCPU].fixed {
		return m, fmt.Errorf("%s and %s have a value of their own in each line", fieldTime, fieldCPU)
	}
	return m, nil
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func listOf(all []field) string {
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

// find finds the columns in the first line of a table. If all are numbers, that line has
// values already.
func (m Mapping) find(first []string) (header bool, err error) {
	numbers, places := true, map[*column]int{}
	for _, c := range m.columns {
		n, err := strconv.Atoi(c.name)
		places[c], numbers = n-1, numbers && (c.fixed || err == nil && n > 0)
	}
	for _, of := range fields {
		c := m.columns[of]
		switch {
		case c == nil || c.fixed:
			continue
		case numbers:
			c.at = places[c]
		default:
			c.at = slices.IndexFunc(first, func(name string) bool { return strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")) == c.name })
		}
		if c.at < 0 || c.at >= len(first) {
			return false, &Fault{Line: 1, Field: string(of), Problem: fmt.Sprintf("there is no column %q: the line has %s", c.name, quoted(first))}
		}
	}
	return !numbers, nil
}

func quoted(names []string) string {
	const most = 20
	all := make([]string, 0, most)
	for _, n := range names[:min(len(names), most)] {
		all = append(all, fmt.Sprintf("%.40q", n))
	}
	return strings.Join(all, ", ")
}

// A Fault is what is wrong with a line.
type Fault struct {
	Line    int // from 1 on
	Field   string
	Problem string
}

func (f *Fault) Error() string {
	if f.Field == "" {
		return fmt.Sprintf("line %d: %s", f.Line, f.Problem)
	}
	return fmt.Sprintf("line %d, %s: %s", f.Line, f.Field, f.Problem)
}

// Options say how to read a table.
type Options struct {
	Mapping Mapping
	Rules   overcommit.Config // the rules of the room
	Step    int64             // in minutes
}

const (
	// maxMinutes is the longest time between two lines. A longer one is a wrong unit.
	maxMinutes = 800 * 24 * 60
	// mostNodes bounds the memory. More names are those of another column than the nodes.
	mostNodes = 20_000
	// noNode is the name of the node of a table without a column of nodes.
	noNode = "node"
	// mostCPU and mostMemory bound what a node has or uses, far above all machines.
	mostCPU, mostMemory = 1e12, 1 << 60
)

// A machine is what was read about a node so far, by steps.
type machine struct {
	prospect.Node // its size at its latest time, and no columns yet
	steps         map[int64]*sample
	resized       bool  // two lines have another size
	sized, filled int64 // the minutes of the latest size of its CPU and of its memory
}

// A sample is what the lines of one step say: the sum of the CPU, the greatest memory, and
// the least size of the node.
type sample struct {
	at     []float64 // the times of its lines, in milliseconds; the last one is the greatest
	cpu    float64
	size   unit.MilliCPU
	memory float64
	of     unit.Bytes // the size of the memory
	known  bool       // the memory
}

// Read reads a table. Each use counts as that of other work, because the table does not
// say which one could be batch work. A step is the mean of its lines. A line without a
// value of cpu is none. A wrong line is a *Fault.
func Read(r io.Reader, o Options) (*Table, error) {
	if o.Step < 1 || o.Step > 60 || 60%o.Step != 0 {
		return nil, fmt.Errorf("a step of %d minutes: want a part of an hour", o.Step)
	}
	lines := csv.NewReader(r)
	lines.ReuseRecord, lines.TrimLeadingSpace = true, true
	t := &Table{options: o, machines: map[string]*machine{}, first: math.MaxInt64, last: math.MinInt64}
	for n := 0; ; n++ {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if bad, is := errors.AsType[*csv.ParseError](err); is {
			return nil, &Fault{Line: bad.Line, Problem: bad.Err.Error()}
		} else if err != nil {
			return nil, err
		}
		if n == 0 {
			header, err := o.Mapping.find(record)
			if err != nil {
				return nil, err
			}
			if header {
				continue
			}
		}
		line, _ := lines.FieldPos(0)
		if err := t.add(line, record); err != nil {
			return nil, err
		}
	}
	if len(t.machines) == 0 {
		return nil, errors.New("the table has no line with a value of cpu")
	}
	return t, nil
}

// A Table is what was read.
type Table struct {
	options     Options
	machines    map[string]*machine
	first, last int64 // steps since 1970
}

// add adds a line.
func (t *Table) add(line int, record []string) error {
	value := func(of field) (string, *column) {
		c := t.options.Mapping.columns[of]
		switch {
		case c == nil:
			return "", nil
		case c.fixed:
			return c.name, c
		}
		return strings.TrimSpace(record[c.at]), c
	}
	number := func(of field) (float64, *column, error) {
		text, c := value(of)
		if c == nil {
			return 0, nil, nil
		}
		v, err := parse(text)
		if err != nil || math.IsNaN(v) || v < 0 || v > 1e18 {
			return 0, c, &Fault{line, string(of), fmt.Sprintf("%.40q: want a number of at least 0", text)}
		}
		return v, c, nil
	}
	if text, _ := value(fieldCPU); text == "" {
		return nil
	}
	exact, err := t.timeOf(line, value)
	if err != nil {
		return err
	}
	at := int64(exact / 60_000)
	use, inCPU, err := number(fieldCPU)
	if err != nil {
		return err
	}
	capacity, inCapacity, err := number(fieldCapacity)
	if err != nil {
		return err
	}
	if capacity <= 0 {
		return &Fault{line, string(fieldCapacity), "a node has more than 0 CPUs"}
	}
	name, named := value(fieldNode)
	if named == nil {
		name = noNode
	} else if name == "" {
		return &Fault{line, string(fieldNode), "the name is empty"}
	}
	step := at / t.options.Step
	if first, last := min(t.first, step), max(t.last, step); (last-first)*t.options.Step > maxMinutes {
		return &Fault{line, string(fieldTime), fmt.Sprintf("it is more than %d days from another line: the unit may be wrong", maxMinutes/1440)}
	}
	t.first, t.last = min(t.first, step), max(t.last, step)
	m := t.machines[name]
	if m == nil {
		if len(t.machines) == mostNodes {
			return &Fault{line, string(fieldNode), fmt.Sprintf("the table has more than %d nodes: node=%.40s of --map may be another column", mostNodes, named.name)}
		}
		m = &machine{Node: prospect.Node{Name: strings.Clone(name)}, steps: map[int64]*sample{}}
		t.machines[m.Name] = m
	}
	if pool, _ := value(fieldPool); pool != m.Pool {
		m.Pool = strings.Clone(pool)
	}
	if inCPU.unit == percent {
		use *= capacity * inCapacity.size / 100
	} else {
		use *= inCPU.size
	}
	if err := impossible(line, fieldCPU, use, capacity*inCapacity.size, inCPU); err != nil {
		return err
	}
	size := unit.MilliCPU(math.Round(min(capacity*inCapacity.size, mostCPU)))
	m.resized = m.resized || m.CPU > 0 && m.CPU != size
	if at >= m.sized {
		m.CPU, m.sized = size, at
	}
	s := m.steps[step]
	if s == nil {
		s = &sample{size: size}
		m.steps[step] = s
	}
	if !s.begin(exact) {
		problem := "the node has another line with this time"
		if named == nil {
			problem = "another line has this time: if the table has several nodes, --map needs node=COLUMN"
		}
		return &Fault{line, string(fieldTime), problem}
	}
	s.size = min(s.size, size)
	s.cpu += use
	return t.addMemory(line, m, s, at, value, number)
}

// begin notes the time of a line. It reports whether no other line has this time. Most
// tables are in the order of the times, so most lines need no search.
func (s *sample) begin(at float64) bool {
	last := len(s.at) - 1
	if last < 0 || at > s.at[last] {
		s.at = append(s.at, at)
		return true
	}
	if slices.Contains(s.at, at) {
		return false
	}
	s.at = append(s.at, s.at[last]) // the greatest one stays the last one
	s.at[last] = at
	return true
}

// parse reads a decimal number. strconv also takes numbers as the source of a program has
// them, such as 1_0 and 0x1p4.
func parse(text string) (float64, error) {
	if strings.ContainsAny(text, "_xX") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(text, 64)
}

// impossible returns the fault of a line that uses more than a tenth above the capacity. A
// little more is noise of the two measurements.
func impossible(line int, of field, use, capacity float64, in *column) error {
	if use <= 1.1*capacity {
		return nil
	}
	var others []string
	for _, u := range units[of] {
		if u.name != in.unit {
			others = append(others, u.name)
		}
	}
	return &Fault{line, string(of), fmt.Sprintf("it is %.3g times the capacity, in %s: is the unit %s?", use/capacity, in.unit, strings.Join(others, " or "))}
}

// timeOf returns the time of a line, in milliseconds since 1970.
func (t *Table) timeOf(line int, value func(field) (string, *column)) (float64, error) {
	text, c := value(fieldTime)
	if c.unit == "rfc3339" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || at.Unix() < 0 {
			return 0, &Fault{line, string(fieldTime), fmt.Sprintf("%.40q: want a time such as 2026-11-30T15:04:05Z", text)}
		}
		return float64(at.Unix())*1000 + float64(at.Nanosecond())/1e6, nil
	}
	v, err := parse(text)
	if err != nil || !(v >= 0 && v*c.size < 1e15) {
		return 0, &Fault{line, string(fieldTime), fmt.Sprintf("%.40q: want a number of at least 0, in %s", text, c.unit)}
	}
	return v * c.size, nil
}

// addMemory adds the memory of a line, if it has one.
func (t *Table) addMemory(line int, m *machine, s *sample, at int64, value func(field) (string, *column), number func(field) (float64, *column, error)) error {
	if text, c := value(fieldMemory); c == nil || text == "" {
		return nil
	}
	memory, inMemory, err := number(fieldMemory)
	if err != nil {
		return err
	}
	size, inSize, err := number(fieldSize)
	if err != nil {
		return err
	}
	if inMemory.unit == percent {
		memory *= size * inSize.size / 100
	} else {
		memory *= inMemory.size
	}
	if err := impossible(line, fieldMemory, memory, size*inSize.size, inMemory); err != nil {
		return err
	}
	of := unit.Bytes(min(size*inSize.size, mostMemory))
	m.resized = m.resized || m.Memory > 0 && m.Memory != of
	if at >= m.filled {
		m.Memory, m.filled = of, at
	}
	if !s.known || of < s.of {
		s.of = of
	}
	s.known, s.memory = true, max(s.memory, memory)
	return nil
}

// Resized returns the number of nodes whose lines have another capacity than the others.
func (t *Table) Resized() (n int) {
	for _, m := range t.machines {
		if m.resized {
			n++
		}
	}
	return n
}

// FittingStep returns the step of the options, in minutes, or the next longer one that has
// a line each time, by the median of the times between the lines of a node.
func (t *Table) FittingStep() int64 {
	gaps, all := map[int64]int{}, 0
	for _, m := range t.machines {
		steps := slices.Sorted(maps.Keys(m.steps))
		for i := 1; i < len(steps); i++ {
			gaps[steps[i]-steps[i-1]]++
			all++
		}
	}
	before, median := 0, int64(1)
	for _, gap := range slices.Sorted(maps.Keys(gaps)) {
		if median = gap; 2*(before+gaps[gap]) >= all {
			break
		}
		before += gaps[gap]
	}
	step := t.options.Step
	for step < min(median*t.options.Step, 60) || 60%step != 0 {
		step++
	}
	return step
}

// Nodes yields the nodes in the order of their names.
func (t *Table) Nodes(yield func(prospect.Node, error) bool) {
	all := make([]*machine, 0, len(t.machines))
	for _, m := range t.machines {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *machine) int { return cmp.Compare(a.Name, b.Name) })
	for _, m := range all {
		if !yield(t.node(m), nil) {
			return
		}
	}
}

// node makes a node. All nodes of a table have the same steps. Room is what the capacity at
// that time gives, and never more than the latest one would: batch work runs there next.
func (t *Table) node(m *machine) prospect.Node {
	n := m.Node
	n.Spare, n.Start, n.Step = m.Memory.Percent(prospect.SparePercent), t.first*t.options.Step, t.options.Step
	for i := t.first; i <= t.last; i++ {
		cpu, memory, room, free := int64(prospect.Absent), int64(prospect.Absent), int64(prospect.Absent), int64(prospect.Absent)
		if s := m.steps[i]; s != nil {
			cpu = int64(math.Round(min(s.cpu/float64(len(s.at)), mostCPU)))
			room = int64(overcommit.AmountOf(t.options.Rules.CPU, overcommit.Sums[unit.MilliCPU]{Capacity: min(s.size, m.CPU), Reserved: t.options.Rules.ReservedCPU, System: unit.MilliCPU(cpu)}).Value())
			if s.known {
				used := unit.Bytes(min(s.memory, mostMemory))
				memory = int64(used >> 20)
				free = int64(overcommit.AmountOf(t.options.Rules.Memory, overcommit.Sums[unit.Bytes]{Capacity: min(s.of, m.Memory), Reserved: t.options.Rules.ReservedMemory, System: used}).Value() >> 20)
			}
		}
		n.UsedCPU, n.RoomCPU = append(n.UsedCPU, cpu), append(n.RoomCPU, room)
		if t.options.Mapping.columns[fieldMemory] != nil {
			n.UsedMemory, n.RoomMemory = append(n.UsedMemory, memory), append(n.RoomMemory, free)
		}
	}
	return n
}
