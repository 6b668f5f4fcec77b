package memory

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// inventExperiment invents a memory experiment. None of its values was
// measured. If better is true, the mode tenond has the better P99.
func inventExperiment(blocks int, better bool) (Experiment, []Run) {
	e := Experiment{Experiment: synthetic.Experiment(blocks, report.Exclusive, report.ExclusiveAA, report.Default, report.Tenond)}
	e.Kind, e.Command, e.Margin = Kind, []string{"tenon", "lab", "memory"}, 1.1
	e.Versions = map[string]string{"nginx": "1.22.1"}
	e.Memory = Setup{
		Set: 256 << 20, Pages: 4096, PageBytes: 65536, Parent: 512 << 20, HogFile: 1 << 30, HogHeld: 128 << 20,
		Request: 320 << 20, HogLimit: 1 << 30, MinPercent: 50, LowPercent: 100, ThrottlingPercent: 18,
	}
	var runs []Run
	for _, r := range synthetic.Runs(e.Experiment, 0.01) {
		runs = append(runs, Run{Run: r})
	}
	for i := range runs {
		r := &runs[i]
		r.Memory = Use{LSHeld: 256 << 20}
		if r.Mode == report.Default || r.Mode == report.Tenond {
			r.Memory.BEBytes, r.Memory.BEHeld = int64(10+r.Block)<<30, 250<<20
		}
		if r.Mode == report.Default || r.Mode == report.Tenond && !better {
			r.Memory.LSRefaults, r.Memory.LSMajorFaults, r.Memory.LSHeld = int64(9000+100*r.Block), 3, 190<<20
			r.Latency.P99, r.Latency.P999, r.Latency.Max = 9*r.Latency.P99, 12*r.Latency.P999, 12*r.Latency.Max
		}
		for at := time.Duration(0); at < e.Duration; at += e.Duration / 20 {
			r.Memory.Readings = append(r.Memory.Readings, Held{At: at, LS: r.Memory.LSHeld, BEFile: r.Memory.BEHeld / 2, BEAnon: r.Memory.BEHeld / 2})
		}
	}
	return e, runs
}

func TestMemoryTableReadsAsTheGoldenFiles(t *testing.T) {
	for name, better := range map[string]bool{"better": true, "no-better": false} {
		e, runs := inventExperiment(8, better)
		var b bytes.Buffer
		if err := Analyse(e, runs).Page().WriteText(&b); err != nil {
			t.Fatal(err)
		}
		synthetic.CheckGolden(t, "memory-"+name+".table.txt", b.Bytes())
		for l := range strings.Lines(b.String()) {
			if n := textlayout.Columns(strings.TrimSuffix(l, "\n")); n > textlayout.Width {
				t.Errorf("%s: line of %d characters, want at most %d:\n%s", name, n, textlayout.Width, l)
			}
		}
	}
}

func TestMemoryClaimsFollowTheData(t *testing.T) {
	for better, want := range map[bool]stat.Verdict{true: stat.Met, false: stat.NotMet} {
		e, runs := inventExperiment(32, better)
		claims := map[string]report.Claim{}
		for _, c := range Analyse(e, runs).Base.Claims {
			claims[c.Name] = c
		}
		for _, name := range []string{"tenond-better-than-default", "tenond-as-exclusive-p99"} {
			if c := claims[name]; c.Verdict != want {
				t.Errorf("better %v: %s: %+v", better, name, c)
			}
		}
		if c := claims["tenond-fewer-refaults"]; (c.Verdict == stat.Met) != better {
			t.Errorf("better %v: refaults: %+v", better, c)
		}
		if c := claims["batch-goes-on"]; c.Verdict != stat.Met {
			t.Errorf("better %v: batch: %+v", better, c)
		}
		if _, ok := claims["tenon-goodput"]; ok {
			t.Error("the result has a claim of the colocation experiment")
		}
	}
}

func TestMemoryPageShowsMemoryAndNeedsNothingElse(t *testing.T) {
	e, runs := inventExperiment(8, true)
	var b bytes.Buffer
	if err := Analyse(e, runs).Page().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"Memory over time in mode default", "Memory over time in mode tenond", "memory hog", "320 MiB", "from 18 % of its limit"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, no := range []string{"NaN", "ffmpeg", "warm is exclusive", "http://", "https://"} {
		if strings.Contains(page, no) {
			t.Errorf("the page has %q", no)
		}
	}
}

func TestMemoryRunsSurviveTheDisk(t *testing.T) {
	e, runs := inventExperiment(2, true)
	dir := t.TempDir()
	if err := report.Create(dir, &e); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if err := report.SaveRun(dir, &r); err != nil {
			t.Fatal(err)
		}
	}
	f, err := report.Kinds{Kind: Open}.Rebuild(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := f.Result().(Result)
	if m := r.Modes[report.Default].Memory; m.Refaults <= 0 || m.Processed <= 0 {
		t.Errorf("memory of default: %+v", m)
	}
}
