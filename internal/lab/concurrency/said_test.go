package concurrency

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// at returns a job that runs alone for a minute, in the given hour.
func at(hour int, how string, limit unit.MilliCPU) jobs.Job {
	in := time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)
	return jobs.Job{Host: "n", Type: how, Concurrency: 1, CPU: limit, In: in, Out: in.Add(time.Minute), Precision: time.Second}
}

func tableOf(t *testing.T, r Result) string {
	t.Helper()
	var b strings.Builder
	if err := r.Page().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestACPUTimeThatIsNotKnownStaysSo analyses jobs without a limit. One of them has
// a measured CPU time. The other CPU times are not known, and explain nothing.
func TestACPUTimeThatIsNotKnownStaysSo(t *testing.T) {
	measured := at(1, "free", 0)
	measured.Concurrency, measured.Extra.CPUSeconds = 2, node.Some(30.0)
	beside := measured
	beside.Index, beside.Extra.CPUSeconds = 1, node.Maybe[float64]{}
	r := Analyse(Experiment{Imported: []string{"a"}}, []jobs.Job{at(0, "free", 0), measured, beside, at(2, "quota", 1000)})
	for _, o := range r.Options {
		if known := o.CPUSeconds.Known(); known != (o.Limit > 0) {
			t.Errorf("%s, %d jobs: %v CPU seconds", o.Type, o.Asked, o.CPUSeconds)
		}
	}
	if len(r.costs.Waves) != 1 {
		t.Errorf("%d waves have a cost, want the one with a limit", len(r.costs.Waves))
	}
	if text := tableOf(t, r); strings.Contains(text, "0.00") || strings.Contains(text, "NaN") || !strings.Contains(text, "was not measured") {
		t.Error(text)
	}
	if r := Analyse(Experiment{}, []jobs.Job{at(0, "free", 0)}); r.CPUMeasured {
		t.Error("the CPU time of jobs of which none is known is called measured")
	}
}

// TestRunsOfACellAreCounted analyses cells that ran once, and cells that ran
// several times without blocks. Only the former have no interval.
func TestRunsOfACellAreCounted(t *testing.T) {
	const once = "Each cell ran once"
	for _, c := range []struct {
		all      []jobs.Job
		headline string
		once     bool
	}{
		{[]jobs.Job{at(0, "a", 1000), at(1, "b", 1000)}, "1 run a cell.", true},
		{[]jobs.Job{at(0, "a", 1000), at(1, "a", 1000)}, "2 runs a cell.", false},
		{[]jobs.Job{at(0, "a", 1000), at(1, "a", 1000), at(2, "b", 1000)}, "1 to 2 runs a cell.", false},
	} {
		r := Analyse(Experiment{Header: report.Header{Blocks: 1}, Imported: []string{"a"}}, c.all)
		if !strings.HasSuffix(headline(r), c.headline) {
			t.Errorf("headline %q, want %q", headline(r), c.headline)
		}
		if got := strings.Contains(strings.Join(r.Warnings, " "), once); got != c.once {
			t.Errorf("%s: warnings %q", c.headline, r.Warnings)
		}
	}
}

// TestManyTypesAreNotCompared analyses more types than anyone would compare in
// pairs.
func TestManyTypesAreNotCompared(t *testing.T) {
	for types, pairs := range map[int]int{45: 990, 46: 0} {
		var all []jobs.Job
		for i := range types {
			all = append(all, at(i, fmt.Sprintf("type%d", i), 1000))
		}
		r := Analyse(Experiment{}, all)
		said := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.HasPrefix(w, "1035 pairs of ways") })
		if len(r.Comparisons) != pairs || said != (pairs == 0) {
			t.Errorf("%d types: %d comparisons, warnings %q", types, len(r.Comparisons), r.Warnings)
		}
	}
}

// TestCellsOfTheTableStayApart prints small and large amounts of memory, and a
// long type.
func TestCellsOfTheTableStayApart(t *testing.T) {
	for memory, want := range map[unit.Bytes]string{0: "n/a", 512: "0.5 KiB", 1: "1 B", 512 << 20: "0.5 GiB", 858993460: "0.8 GiB", 1 << 40: "1024 GiB", 5 << 20: "5 MiB"} {
		j := at(0, "a-type-with-more-than-twenty-letters", 1000)
		j.Memory = memory
		if memory == 0 {
			want = memoryText(0)
		}
		if text := tableOf(t, Analyse(Experiment{}, []jobs.Job{j})); !strings.Contains(text, " "+want+"\n") || !strings.Contains(text, "\na-type-with-more-than-twenty-letters ") {
			t.Errorf("%d bytes, want %q:\n%s", memory, want, text)
		}
	}
}
