package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/stat"
)

// A row is one figure of one block.
type row struct {
	part, kind  string
	load, pools int
	rival       string
	block       int
	figure      string
	value       float64
}

func (r row) String() string {
	return fmt.Sprintf("%s,%s,%d,%d,%s,%d,%s,%.4f", r.part, r.kind, r.load, r.pools, r.rival, r.block, r.figure, r.value)
}

func read(text string) ([]row, error) {
	var all []row
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var r row
		parts := strings.Split(line, ",")
		if len(parts) != 8 {
			return nil, fmt.Errorf("line %d: want 8 fields, got %d", i+1, len(parts))
		}
		r.part, r.kind, r.rival, r.figure = parts[0], parts[1], parts[4], parts[6]
		if _, err := fmt.Sscan(strings.Join([]string{parts[2], parts[3], parts[5], parts[7]}, " "), &r.load, &r.pools, &r.block, &r.value); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// A setting identifies a group of rows in which the rivals are compared.
type setting struct {
	part, kind  string
	load, pools int
}

// smallerIsBetter contains the figures for which a smaller value is better.
var smallerIsBetter = map[string]bool{"split": true, "waited": true, "stranded": true, "refused": true}

// margin is the difference, in percentage points, below which two rivals count
// as equal.
const margin = 0.25

// verdict compares a figure of Tenon with that of a rival, over the blocks of
// both. The estimate is the value of Tenon minus that of the rival.
func verdict(figure string, ours, theirs stat.Sample) (stat.Estimate, string) {
	pairs := 0
	for block := range ours {
		if _, both := theirs[block]; both {
			pairs++
		}
	}
	d := stat.Difference(ours, theirs, paired.Blocks().Planned(pairs))
	low, high := d.ClaimLower, d.ClaimUpper
	if smallerIsBetter[figure] {
		low, high = -high, -low
	}
	switch {
	case d.Value == 0 && d.Low == 0 && d.High == 0, d.Enough && low > -margin && high < margin:
		return d, "equal"
	case d.Enough && low > 0:
		return d, "better"
	case d.Enough && high < 0:
		return d, "worse"
	}
	return d, "undecided"
}

// summary prints each figure of each rival with its interval, and compares the
// rivals with Tenon.
func summary(all []row) string {
	samples := map[setting]map[string]map[string]stat.Sample{}
	for _, r := range all {
		s := setting{r.part, r.kind, r.load, r.pools}
		if samples[s] == nil {
			samples[s] = map[string]map[string]stat.Sample{}
		}
		if samples[s][r.figure] == nil {
			samples[s][r.figure] = map[string]stat.Sample{}
		}
		if samples[s][r.figure][r.rival] == nil {
			samples[s][r.figure][r.rival] = stat.Sample{}
		}
		samples[s][r.figure][r.rival][r.block] = r.value
	}
	var b strings.Builder
	order := slices.SortedFunc(maps.Keys(samples), func(a, c setting) int {
		return cmp.Or(cmp.Compare(a.part, c.part), cmp.Compare(a.kind, c.kind), cmp.Compare(a.pools, c.pools), cmp.Compare(a.load, c.load))
	})
	for _, s := range order {
		figures := slices.Sorted(maps.Keys(samples[s]))
		fmt.Fprintf(&b, "%s", s.part)
		if s.part != "sequences" {
			fmt.Fprintf(&b, ", %s", s.kind)
		}
		if s.load > 0 {
			fmt.Fprintf(&b, ", load %d %%, pools %d %%", s.load, s.pools)
		}
		b.WriteByte('\n')
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "RIVAL\t"+strings.ToUpper(strings.Join(figures, "\t")))
		for _, m := range makers {
			cells := []string{m.name}
			for _, f := range figures {
				cells = append(cells, cell(f, samples[s][f], m.name))
			}
			if len(samples[s][figures[0]][m.name]) > 0 {
				fmt.Fprintln(w, strings.Join(cells, "\t"))
			}
		}
		w.Flush() // writes to memory and cannot fail
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "percent, mean of the blocks ± half of its 95 %% interval; in brackets what Tenon is beside this rival:\nbetter, worse, equal (both bounds within %.2f points), or undecided\n", margin)
	return b.String()
}

func cell(figure string, of map[string]stat.Sample, rival string) string {
	e := stat.Describe(of[rival])
	text := fmt.Sprintf("%.2f", e.Value)
	if half := (e.High - e.Low) / 2; half > 0 && !math.IsInf(half, 1) {
		text += fmt.Sprintf(" ± %.2f", half)
	}
	ours := of[makers[0].name]
	if rival == makers[0].name || len(ours) == 0 {
		return text
	}
	_, word := verdict(figure, ours, of[rival])
	return text + " (" + word + ")"
}
