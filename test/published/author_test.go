package published

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/jobfiles"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/published"
	"tenon.sh/tenon/internal/model/unit"
)

// authorsPage shows the figures of the author's own jobs.
const authorsPage = root + "docs/published-jobs.md"

// archives has the archives of logs that the author has published, each with the
// way in which its jobs ran. The logs are not ours, so the repository has the
// figures of their jobs only. TENON_TEST_PUBLISHED_LOGS names a folder in which
// the archives are unpacked, each in a folder of its name.
var archives = []struct{ set, strategy, names string }{
	{"quota", "quota", "aws"},
	{"slices", "pinned", "lxd-4x2c lxd-4x3c lxd-3x4c lxd-4x4c lxd-3x5c"},
	{"no limit", "unbounded", "aws-16cx1 aws-16cx1-p2"},
}

// A cell is the mean of the jobs that ran in one way on one node.
type cell struct {
	Set     string        `json:"set"`
	CPU     unit.MilliCPU `json:"cpu_mcpu"` // the limit, or of jobs without a limit the request
	Jobs    int           `json:"jobs"`     // at once on the node
	Seconds float64       `json:"seconds"`
	Waves   int           `json:"waves"` // groups of jobs that ran beside each other
}

// cellsOf imports archives, and takes the mean over their waves.
func cellsOf(t *testing.T, folder, set, strategy, names string) (cells []cell, count int) {
	t.Helper()
	var paths []string
	for name := range strings.FieldsSeq(names) {
		paths = append(paths, filepath.Join(folder, name))
	}
	in, err := jobfiles.ReadPaths(paths)
	if err != nil {
		t.Fatal(err)
	}
	for i := range in.Jobs {
		in.Jobs[i].Extra.Strategy = strategy
	}
	sums := map[cell]cell{}
	for _, w := range jobs.Waves(in.Jobs) {
		seconds := 0.0
		for _, j := range w.Jobs {
			seconds += j.Seconds() / float64(len(w.Jobs))
			count++
		}
		key := cell{Set: set, CPU: w.Cell.CPU, Jobs: w.Slots()}
		sum := sums[key]
		sums[key] = cell{key.Set, key.CPU, key.Jobs, sum.Seconds + seconds, sum.Waves + 1}
	}
	for _, sum := range sums {
		sum.Seconds = math.Round(10*sum.Seconds/float64(sum.Waves)) / 10
		cells = append(cells, sum)
	}
	slices.SortFunc(cells, func(a, b cell) int { return int(a.CPU-b.CPU)*100 + a.Jobs - b.Jobs })
	return cells, count
}

// TestTheFiguresAreThoseOfTheLogs imports the author's logs.
func TestTheFiguresAreThoseOfTheLogs(t *testing.T) {
	folder := os.Getenv("TENON_TEST_PUBLISHED_LOGS")
	if folder == "" {
		t.Skip("TENON_TEST_PUBLISHED_LOGS names no folder with the author's logs")
	}
	var want []cell
	count := 0
	for _, a := range archives {
		cells, n := cellsOf(t, folder, a.set, a.strategy, a.names)
		want, count = append(want, cells...), count+n
	}
	if count != 486 {
		t.Errorf("%d jobs, want 486", count)
	}
	if *update {
		var b strings.Builder
		b.WriteString("[\n")
		for i, c := range want {
			line, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString("  " + string(line) + map[bool]string{true: ",\n", false: "\n"}[i+1 < len(want)])
		}
		if err := os.WriteFile("author.json", []byte(b.String()+"]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, authorsCells(t)); diff != "" {
		t.Errorf("author.json has other figures (-logs, +file):\n%s", diff)
	}
}

func authorsCells(t *testing.T) (cells []cell) {
	t.Helper()
	text, err := os.ReadFile("author.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &cells); err != nil {
		t.Fatal(err)
	}
	return cells
}

// TestTheAuthorsTables makes the tables of the page from the figures.
func TestTheAuthorsTables(t *testing.T) {
	cells := authorsCells(t)
	compareTables(t, authorsPage, map[string]string{
		"means": means(cells), "penalties": penalties(cells), "crossing": crossing(cells), "no-limit": noLimit(cells), "open-question": openQuestion(t), "claims": claims(t, cells),
	})
}

// find returns the cell of a set, or a cell with 0 waves. CPU 0 stands for all
// amounts, whose mean counts each wave once.
func find(cells []cell, set string, cpu unit.MilliCPU, count int) cell {
	sum := cell{Set: set, CPU: cpu, Jobs: count}
	for _, c := range cells {
		if c.Set == set && c.Jobs == count && (cpu == 0 || c.CPU == cpu) {
			sum.Seconds += c.Seconds * float64(c.Waves)
			sum.Waves += c.Waves
		}
	}
	sum.Seconds /= float64(max(sum.Waves, 1))
	return sum
}

// A markdown is a table under construction.
type markdown struct{ strings.Builder }

func newTable(columns ...string) *markdown {
	m := &markdown{}
	m.line(columns...)
	m.line(slices.Repeat([]string{"---"}, len(columns))...)
	return m
}

func (m *markdown) line(cells ...string) { m.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

// limits are those that ran both under a quota and in slices.
var limits = []unit.MilliCPU{2000, 3000, 4000, 5000}

func cpus(m unit.MilliCPU) string { return strconv.FormatFloat(m.Cores(), 'g', -1, 64) }

func means(cells []cell) string {
	m := newTable("limit", "jobs on the node", "quota (s)", "slices (s)", "slices / quota", "CPU-s, quota", "CPU-s, slices")
	for _, cpu := range limits {
		for count := 1; count <= 4; count++ {
			q, s := find(cells, "quota", cpu, count), find(cells, "slices", cpu, count)
			if q.Waves == 0 && s.Waves == 0 {
				continue
			}
			shown := func(c cell, factor float64, digits int) string {
				if c.Waves == 0 {
					return "not run"
				}
				return strconv.FormatFloat(c.Seconds*factor, 'f', digits, 64)
			}
			ratio := "–"
			if q.Waves > 0 && s.Waves > 0 {
				ratio = fmt.Sprintf("%.2f", s.Seconds/q.Seconds)
			}
			m.line(cpus(cpu), strconv.Itoa(count), shown(q, 1, 1), shown(s, 1, 1), ratio, shown(q, cpu.Cores(), 0), shown(s, cpu.Cores(), 0))
		}
	}
	return m.String()
}

func penalties(cells []cell) string {
	columns := []string{"jobs on the node"}
	for _, set := range []string{"quota", "slices"} {
		for _, cpu := range limits {
			columns = append(columns, set+" "+cpus(cpu))
		}
	}
	m := newTable(append(columns, "no limit")...)
	for count := 1; count <= 4; count++ {
		line := []string{strconv.Itoa(count)}
		add := func(set string, cpu unit.MilliCPU) {
			alone, c := find(cells, set, cpu, 1), find(cells, set, cpu, count)
			if c.Waves == 0 {
				line = append(line, "not run")
				return
			}
			line = append(line, percent(100*(c.Seconds/alone.Seconds-1), 0)+" %")
		}
		for _, set := range []string{"quota", "slices"} {
			for _, cpu := range limits {
				add(set, cpu)
			}
		}
		add("no limit", 0)
		m.line(line...)
	}
	return m.String()
}

// crossing shows from how many jobs on slices are not faster than a quota.
func crossing(cells []cell) string {
	m := newTable("limit", "from how many jobs on a quota is faster", "CPUs of the slices then")
	for _, cpu := range limits {
		last := 0
		line := []string{cpus(cpu), "", "–"}
		for count := 1; count <= 4 && line[1] == ""; count++ {
			q, s := find(cells, "quota", cpu, count), find(cells, "slices", cpu, count)
			if q.Waves == 0 || s.Waves == 0 {
				continue
			}
			last = count
			if s.Seconds >= q.Seconds {
				line[1], line[2] = strconv.Itoa(count), fmt.Sprintf("%g of 16", float64(count)*cpu.Cores())
			}
		}
		if line[1] == "" {
			line[1] = fmt.Sprintf("not up to %d, the most that ran", last)
		}
		m.line(line...)
	}
	return m.String()
}

func noLimit(cells []cell) string {
	m := newTable("jobs on the node", "no limit (s)", "by request, least to most (s)", "jobs an hour", "most with a quota", "most with slices")
	for count := 1; count <= 3; count++ {
		all := find(cells, "no limit", 0, count)
		least, most := math.Inf(1), 0.0
		best := map[string]float64{}
		for _, c := range cells {
			if c.Set == "no limit" && c.Jobs == count {
				least, most = min(least, c.Seconds), max(most, c.Seconds)
			}
			if c.Set != "no limit" && c.Jobs == count {
				best[c.Set] = max(best[c.Set], 3600*float64(count)/c.Seconds)
			}
		}
		m.line(strconv.Itoa(count), fmt.Sprintf("%.1f", all.Seconds), fmt.Sprintf("%.1f to %.1f", least, most),
			fmt.Sprintf("%.0f", 3600*float64(count)/all.Seconds), fmt.Sprintf("%.0f", best["quota"]), fmt.Sprintf("%.0f", best["slices"]))
	}
	return m.String()
}

// openQuestion answers why a job costs most if all jobs together may use about one
// CPU, from the 27 cells of the heat map.
func openQuestion(t *testing.T) string {
	t.Helper()
	heat := tableNamed(t, "heat-map")
	var all []jobs.Job
	at := time.Date(2017, 3, 17, 10, 0, 0, 0, time.UTC)
	by := map[float64][]float64{} // CPU-seconds of a job by the CPUs that all may use
	for _, r := range heat.Rows {
		word, _, _ := strings.Cut(r.Fact, " ")
		count, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		for j, n := range r.Theirs {
			if n == nil {
				continue
			}
			limit, err := strconv.ParseFloat(strings.TrimPrefix(heat.Columns[j], "limit "), 64)
			if err != nil {
				t.Fatal(err)
			}
			seconds := value(t, n)
			total := math.Round(10*limit*float64(count)) / 10
			by[total] = append(by[total], limit*seconds)
			for i := range count {
				all = append(all, jobs.Job{Host: "node00", Type: "bm", Concurrency: count, CPU: unit.MilliCPU(math.Round(1000 * limit)), Memory: 8 << 30, Index: i, In: at, Out: at.Add(time.Duration(seconds) * time.Second), Precision: time.Second})
			}
			at = at.Add(time.Duration(seconds+60) * time.Second)
		}
	}
	c := jobs.CostsOf(jobs.Waves(all))
	if len(c.Waves) != 27 || len(c.Causes) < 3 {
		t.Fatalf("%d waves, causes %+v", len(c.Waves), c.Causes)
	}
	var m markdown
	for _, cause := range c.Causes {
		if cause.Groups > 1 {
			fmt.Fprintf(&m, "- %s: %.1f %%\n", cause.Name, 100*max(cause.Adjusted, 0))
		}
	}
	m.WriteString("\n")
	lines := newTable("CPUs of all jobs together, of 4", "cells", "CPU-seconds of a job")
	for _, total := range slices.Sorted(maps.Keys(by)) {
		cost := fmt.Sprintf("%.0f", slices.Min(by[total]))
		if most := fmt.Sprintf("%.0f", slices.Max(by[total])); most != cost {
			cost += " to " + most
		}
		lines.line(fmt.Sprintf("%g", total), strconv.Itoa(len(by[total])), cost)
	}
	return m.String() + lines.String()
}

// claims lays the three conclusions of the document beside its author's figures
// and ours.
func claims(t *testing.T, cells []cell) string {
	t.Helper()
	heat := tableNamed(t, "heat-map")
	least, most := math.Inf(1), 0.0
	for _, r := range heat.Rows {
		for j, n := range r.Theirs {
			limit, err := strconv.ParseFloat(strings.TrimPrefix(heat.Columns[j], "limit "), 64)
			if err != nil {
				t.Fatal(err)
			}
			if n != nil && limit < 1 {
				ratio := value(t, n) / value(t, heat.FirstOf(j))
				least, most = min(least, ratio), max(most, ratio)
			}
		}
	}
	here := tableNamed(t, "strategies").Runs[0].Experiment
	result := rebuild(t, here)
	at := func(path string) float64 {
		n, is := published.Lookup(result, path).(json.Number)
		if !is {
			t.Fatalf("%s has no %s", here, path)
		}
		return value(t, &n)
	}
	ours := []float64{}
	for limit, counts := range map[string][]string{"100": {"2", "3", "4", "8", "16"}, "200": {"2", "3", "4", "8"}, "400": {"2", "3", "4"}, "800": {"2"}} {
		for _, count := range counts {
			ours = append(ours, at("options[strategy=quota,limit_mcpu="+limit+",jobs="+count+"].penalty"))
		}
	}
	pinned := func(key string) float64 {
		return 1 / at("comparisons[of=quota,to=pinned,limit_mcpu=1000,jobs=1].job_seconds_ratio_interval."+key)
	}
	hourly := func(option string) float64 { return at("options[" + option + "].jobs_per_hour.estimate") }
	alone := []float64{}
	for _, cpu := range limits {
		alone = append(alone, find(cells, "slices", cpu, 1).Seconds/find(cells, "quota", cpu, 1).Seconds)
	}
	rate := func(set string, cpu unit.MilliCPU) float64 { return 3 * 3600 / find(cells, set, cpu, 3).Seconds }
	m := newTable("document", "its author's figures", "here, "+here[:len("2026-11-25")])
	m.line("Below 1 CPU, more jobs at once change the time of a job by less than 4 %", fmt.Sprintf("×%.2f to ×%.2f", least, most),
		fmt.Sprintf("×%.2f to ×%.2f; two equal cells ×%.2f (%.2f to %.2f)", slices.Min(ours), slices.Max(ours), at("control.estimate"), at("control.low"), at("control.high")))
	m.line("With few jobs, own CPUs are better than a quota", fmt.Sprintf("a job alone takes ×%.2f to ×%.2f of its time", slices.Min(alone), slices.Max(alone)),
		fmt.Sprintf("×%.2f (%.2f to %.2f)", pinned("estimate"), pinned("high"), pinned("low")))
	m.line("Without a limit, a node ends the most jobs", fmt.Sprintf("%.0f an hour, three jobs at once; quota of 5 CPUs %.0f, slices of 5 CPUs %.0f", rate("no limit", 0), rate("quota", 5000), rate("slices", 5000)),
		fmt.Sprintf("%.0f an hour, four jobs at once; quota of 0.4 %.0f, own CPU each for two jobs %.0f: undecided", hourly("strategy=unbounded,threads=,jobs=4"), hourly("strategy=quota,limit_mcpu=400,jobs=4"), hourly("strategy=pinned,limit_mcpu=1000,jobs=2")))
	return m.String()
}
