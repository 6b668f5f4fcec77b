package main

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A mapping says what the columns of a trace mean. They count from 1.
type mapping struct {
	comma                        byte
	header                       int // lines that are no data
	time, machine, use, capacity int // machine 0: the name of the file; capacity 0: full
	unit                         time.Duration
	full                         float64
	step, hold                   time.Duration
}

// A machine is the use of one machine of a trace, one value for each step from
// the first one. NaN: no sample.
type machine struct {
	name     string
	capacity float64 // the greatest one
	first    int64
	use      []float64
}

// read reads the machines of a trace, in the order of their names.
func read(files []string, m mapping) ([]*machine, error) {
	byName := map[string]*machine{}
	for _, name := range files {
		if err := readFile(name, m, byName); err != nil {
			return nil, err
		}
	}
	var all []*machine
	for _, one := range byName {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *machine) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

func readFile(name string, m mapping, byName map[string]*machine) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read a trace: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if n <= m.header || len(lines.Bytes()) == 0 {
			continue
		}
		if err := readLine(lines.Text(), filepath.Base(name), m, byName); err != nil {
			return fmt.Errorf("read a trace: %s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read a trace: %s: %w", name, err)
	}
	return nil
}

func readLine(line, id string, m mapping, byName map[string]*machine) error {
	columns := strings.Split(line, string(m.comma))
	number := func(column int) (float64, error) {
		if column > len(columns) {
			return 0, fmt.Errorf("it has %d columns, and column %d is asked for", len(columns), column)
		}
		return strconv.ParseFloat(strings.TrimSpace(columns[column-1]), 64)
	}
	if m.machine > 0 {
		if m.machine > len(columns) {
			return fmt.Errorf("it has %d columns, and column %d is asked for", len(columns), m.machine)
		}
		id = columns[m.machine-1]
	}
	at, err := number(m.time)
	if err != nil {
		return err
	}
	if m.use <= len(columns) && columns[m.use-1] == "" {
		return nil // no sample
	}
	use, err := number(m.use)
	if err != nil {
		return err
	}
	capacity := m.full
	if m.capacity > 0 {
		if capacity, err = number(m.capacity); err != nil {
			return err
		}
	}
	if use < 0 || math.IsNaN(use) || capacity < 0 {
		return nil // some traces mark a lost sample with a negative number
	}
	step := int64(at*m.unit.Seconds()) / int64(m.step.Seconds())
	one := byName[id]
	if one == nil {
		one = &machine{name: id, first: step}
		byName[id] = one
	}
	one.add(step, use, capacity)
	return nil
}

// add adds a sample. Of several samples within a step the greatest counts.
func (v *machine) add(step int64, use, capacity float64) {
	v.capacity = math.Max(v.capacity, capacity)
	if step < v.first { // files of one machine may come in any order
		before := make([]float64, v.first-step, int(v.first-step)+len(v.use))
		for i := range before {
			before[i] = math.NaN()
		}
		v.use, v.first = append(before, v.use...), step
	}
	for int64(len(v.use)) <= step-v.first {
		v.use = append(v.use, math.NaN())
	}
	if at := &v.use[step-v.first]; math.IsNaN(*at) || use > *at {
		*at = use
	}
}

// A room is what batch work may use on a node, in steps from a full hour on.
// whole is the capacity of the node in its unit.
type room struct {
	hour  int64 // of the first step, since 1970
	steps []int64
}

const (
	// whole is the capacity of each node: room is in thousandths of a percent.
	whole = 100_000
	// noValue is a step at which no machine of the node has a sample.
	noValue = -1
)

// roomOf returns the room of a node of some machines: threshold percent of their
// capacity, less their use. A machine counts its last sample for hold; after that
// it has ended, or has not begun, and uses nothing.
func roomOf(machines []*machine, m mapping, threshold float64) room {
	perHour := int64(time.Hour / m.step)
	first, end, capacity := int64(math.MaxInt64), int64(math.MinInt64), 0.0
	for _, v := range machines {
		first, end, capacity = min(first, v.first), max(end, v.first+int64(len(v.use))), capacity+v.capacity
	}
	first -= first % perHour
	r := room{hour: first / perHour, steps: make([]int64, end-first)}
	used, seen := make([]float64, len(r.steps)), make([]bool, len(r.steps))
	for _, v := range machines {
		last, age := math.NaN(), time.Duration(0)
		for i := range r.steps {
			if at := first + int64(i) - v.first; at >= 0 && at < int64(len(v.use)) && !math.IsNaN(v.use[at]) {
				last, age = v.use[at], 0
			}
			if !math.IsNaN(last) && age <= m.hold {
				used[i], seen[i] = used[i]+last, true
			}
			age += m.step
		}
	}
	for i := range r.steps {
		r.steps[i] = noValue
		if seen[i] && capacity > 0 {
			r.steps[i] = int64(math.Max(whole*(threshold/100-used[i]/capacity), 0))
		}
	}
	return r
}
