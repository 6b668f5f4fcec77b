package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/schedtrace"
)

// A setting has the values that all cells of one row of the table share.
type setting struct {
	kernel        string
	cpus, threads int
}

func (s setting) compare(o setting) int {
	return cmp.Or(version(s.kernel)-version(o.kernel), cmp.Compare(s.kernel, o.kernel), s.cpus-o.cpus, s.threads-o.threads)
}

// series returns the first two numbers of a kernel release.
func series(release string) string {
	parts := strings.SplitN(release, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// version orders kernels by the first two numbers of their release.
func version(release string) int {
	var major, minor int
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor)
	return 1000*major + minor
}

// A measuredCell is the result of one run of a cell, or the sum of several
// runs.
type measuredCell struct {
	wakes, preempted int
	found, late      schedtrace.By[int]
	waited           time.Duration
	be, left         time.Duration // CPU time of BE, and CPU time that the service and daemons did not use
}

func (m *measuredCell) add(r meansResult) {
	m.wakes += r.Wakes
	m.preempted += r.Preempted
	for to, from := range map[*schedtrace.By[int]]schedtrace.By[int]{&m.found: r.Found, &m.late: r.Late} {
		to.Idle, to.BE, to.Own, to.Other = to.Idle+from.Idle, to.BE+from.BE, to.Own+from.Own, to.Other+from.Other
	}
	m.waited += r.Waited.Idle + r.Waited.BE + r.Waited.Own + r.Waited.Other
	m.be += r.CPU.BE
	m.left += r.CPU.BE + r.CPU.Idle
}

// perWake returns the waiting time per wake-up, in µs.
func (m measuredCell) perWake() float64 { return float64(m.waited) / 1e3 / float64(m.wakes) }

// share returns the CPU time of BE, divided by the CPU time that the service
// and daemons did not use.
func (m measuredCell) share() float64 { return float64(m.be) / float64(m.left) }

// perThousand formats how many of a thousand wake-ups were late: behind BE,
// behind other threads of the service, and behind all other threads.
func (m measuredCell) perThousand() string {
	of := func(n int) float64 { return 1000 * float64(n) / float64(m.wakes) }
	return fmt.Sprintf("%.0f / %.0f / %.0f", of(m.late.BE), of(m.late.Own), of(m.late.Other))
}

// printTable prints the table of the results in the files.
func printTable(w io.Writer, files []string) error {
	results, err := readMeans(files)
	if err != nil {
		return err
	}
	cells := map[setting]map[string]*measuredCell{}
	runs := map[schedule]map[string]*measuredCell{} // the results of a schedule, by means
	at := func(m map[string]*measuredCell, name string) *measuredCell {
		if m[name] == nil {
			m[name] = &measuredCell{}
		}
		return m[name]
	}
	for _, r := range results {
		s := setting{r.Kernel, r.CPUs, r.Threads}
		if cells[s] == nil {
			cells[s] = map[string]*measuredCell{}
		}
		at(cells[s], r.Means).add(r)
		one := schedule{s, r.Seed}
		if runs[one] == nil {
			runs[one] = map[string]*measuredCell{}
		}
		at(runs[one], r.Means).add(r)
	}
	out := bufio.NewWriter(w)
	rows := slices.SortedFunc(maps.Keys(cells), setting.compare)
	fmt.Fprint(out, "Late wake-ups of 1000, behind BE / other threads of the service / all other threads:\n\n")
	printGrid(out, rows, cells, measuredCell.perThousand)
	fmt.Fprint(out, "\nAll waiting per wake-up, µs:\n\n")
	printGrid(out, rows, cells, func(m measuredCell) string { return fmt.Sprintf("%.0f", m.perWake()) })
	fmt.Fprint(out, "\nShare of the CPU time left by service and daemons that BE used, %:\n\n")
	printGrid(out, rows, cells, func(m measuredCell) string { return fmt.Sprintf("%.0f", 100*m.share()) })
	fmt.Fprint(out, "\n| kernel | waiting per wake-up | runs | less in | median | least | most | BE CPU |\n|"+strings.Repeat(" --- |", 8)+"\n")
	var kernels []string
	for _, s := range rows {
		kernels = append(kernels, series(s.kernel))
	}
	for _, kernel := range append(slices.Compact(kernels), "all") {
		printComparisons(out, kernel, runs)
	}
	return out.Flush()
}

// printGrid prints a row for each setting and a column for each means.
func printGrid(w io.Writer, rows []setting, cells map[setting]map[string]*measuredCell, text func(measuredCell) string) {
	fmt.Fprint(w, "| kernel | CPUs | threads |")
	for _, m := range allMeans {
		fmt.Fprintf(w, " %s |", m.name)
	}
	fmt.Fprintf(w, "\n|%s\n", strings.Repeat(" --- |", 3+len(allMeans)))
	for _, s := range rows {
		fmt.Fprintf(w, "| %s | %d | %d |", series(s.kernel), s.cpus, s.threads)
		for _, m := range allMeans {
			if c := cells[s][m.name]; c != nil && c.wakes > 0 {
				fmt.Fprintf(w, " %s |", text(*c))
			} else {
				fmt.Fprint(w, " – |")
			}
		}
		fmt.Fprintln(w)
	}
}

// A schedule is one setting with one seed. In one schedule, the requests are
// the same for all means.
type schedule struct {
	setting
	seed int
}

// printComparisons compares the means in the runs of one kernel, or in all runs
// if kernel is "all".
func printComparisons(w io.Writer, kernel string, runs map[schedule]map[string]*measuredCell) {
	for _, pair := range [][2]string{
		{"floor", "default"}, {"idle", "default"}, {"idle-pods", "default"}, {"scx", "default"},
		{"idle", "floor"}, {"idle-pods", "floor"}, {"scx", "floor"}, {"scx", "idle"},
	} {
		var ratios, shares []float64
		less := 0
		for r, of := range runs {
			a, b := of[pair[0]], of[pair[1]]
			if kernel != "all" && kernel != series(r.kernel) || a == nil || b == nil || a.wakes*b.wakes == 0 || b.waited == 0 {
				continue
			}
			ratio := a.perWake() / b.perWake()
			if ratio < 1 {
				less++
			}
			ratios, shares = append(ratios, ratio), append(shares, a.share()/b.share())
		}
		if len(ratios) == 0 {
			continue
		}
		slices.Sort(ratios)
		slices.Sort(shares)
		fmt.Fprintf(w, "| %s | %s to %s | %d | %d | %.2f | %.2f | %.2f | %.2f |\n", kernel, pair[0], pair[1], len(ratios), less,
			median(ratios), ratios[0], ratios[len(ratios)-1], median(shares))
	}
}

// median returns the median of a sorted list that is not empty.
func median(sorted []float64) float64 {
	n := len(sorted)
	return math.Sqrt(sorted[(n-1)/2] * sorted[n/2])
}

// readMeans reads the lines of JSON in the files.
func readMeans(files []string) ([]meansResult, error) {
	if len(files) == 0 {
		return nil, errors.New("want files with the output of isolation means")
	}
	var results []meansResult
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "{") {
				continue
			}
			var r meansResult
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", name, line, err)
			}
			results = append(results, r)
		}
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("%s: no results", strings.Join(files, ", "))
	}
	return results, nil
}
