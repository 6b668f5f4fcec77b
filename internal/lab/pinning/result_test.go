package pinning

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/report"
)

// runs returns the runs of several blocks. The quota makes the job slower by a
// fifth, and exclusive CPUs change nothing.
func runs(blocks int) []Run {
	moves, switches := 30.0, 200.0
	var all []Run
	for block := 1; block <= blocks; block++ {
		slow := 1 + 0.01*float64(block) // the machine drifts
		for _, m := range Modes {
			seconds := 2 * slow
			if m != SharedFree && m != Pinned && m != PinnedWorst {
				seconds *= 1.25
			}
			all = append(all,
				Run{
					Index: len(all) + 1, Block: block, Part: Pi, Mode: m, Seconds: seconds, CPU: 2, Periods: 20, Throttled: 10, Waiting: 4, Moves: &moves, Switches: &switches,
					PiResult: &pi.Report{Threads: 3000, Digits: 20000, Right: 20000, Seconds: seconds},
				},
				Run{
					Index: len(all) + 2, Block: block, Part: NGINX, Mode: m, Seconds: 3, CPU: 3,
					Closed: &ClosedLoop{Rate: 9000 / seconds, Mean: 100 * seconds, P99: 300}, Open: &OpenLoop{Rate: 3000, Mean: 90, P99: 200},
				})
		}
	}
	return all
}

func experiment(servers int) Experiment {
	return Experiment{Header: report.Header{Modes: Modes, Blocks: 4, Refused: []string{"pinned-worst: no"}}, Parts: []string{Pi, NGINX}, Limit: 1, Threads: 3000, Digits: 20000, Rounds: 2, Servers: servers}
}

func TestTheQuotaIsToldFromTheChoiceOfCPUs(t *testing.T) {
	all := runs(4)
	for i := range all { // the job uses more CPUs than its limit: that is no effect of a quota
		if all[i].Part == Pi && all[i].Mode == SharedFree {
			all[i].PiResult.Seconds /= 2
		}
	}
	r := Analyse(experiment(2), all)
	for i, factors := range []map[string]float64{
		{"no quota on own CPUs": 0.8, "both": 0.8, "the same again": 1, "own CPUs under the quota": 1, "warm CPUs": 1, "the worst CPUs": 1, "a pool": 1},
		{"no quota": 1.25, "own CPUs": 1, "both": 1.25, "the same again": 1, "own CPUs under the quota": 1, "warm CPUs": 1, "the worst CPUs": 1, "a pool": 1},
	} {
		p := r.Parts[i]
		for _, f := range p.Factors {
			want, known := factors[f.Of]
			if d := f.Change.Value - want; !known || d > 1e-9 || d < -1e-9 {
				t.Errorf("%s, %s: %v, want %v (%v)", p.Name, f.Of, f.Change.Value, want, known)
			}
		}
		if len(p.Factors) != len(factors) {
			t.Errorf("%s has %d factors, want %d", p.Name, len(p.Factors), len(factors))
		}
	}
	if c := r.Parts[1].Modes[4].Change["requests_per_second"]; c.Value < 1.2499 || c.Value > 1.2501 {
		t.Errorf("pinned answers %v times as many requests", c.Value)
	}
}

// TestOnANodeTheColumnsOfWrkAreShownWithoutAClaim checks the tables of an
// experiment whose client ran on the tested node. A figure that no run has must
// not be a column.
func headsOf(p Part) string {
	var heads []string
	for _, c := range columns(p) {
		heads = append(heads, c.Name)
	}
	return strings.Join(heads, ",")
}

func TestOnANodeTheColumnsOfWrkAreShownWithoutAClaim(t *testing.T) {
	e := experiment(2)
	e.Node, e.ClientOnNode = "worker-1", true
	all := runs(2)
	for i := range all {
		all[i].Open, all[i].Moves, all[i].Switches = nil, nil, nil
		if all[i].Part == Pi {
			all[i].CPU = 0 // not counted
		}
	}
	r := Analyse(e, all)
	if r.Parts[1].Claims || !r.Parts[0].Claims {
		t.Errorf("claims: job %v, servers %v", r.Parts[0].Claims, r.Parts[1].Claims)
	}
	if heads := headsOf(r.Parts[1]); heads != "requests/s,average,deviation,max,50 %,75 %,90 %,99 %,CPU-s,held %,waits s/s" {
		t.Errorf("columns of the servers: %s", heads)
	}
	if heads := headsOf(r.Parts[0]); heads != "seconds" {
		t.Errorf("columns of the job: %s", heads)
	}
	if s := sentences(r.Parts[1]); len(s) != 1 || !strings.Contains(s[0], "do not compare the speeds") || picture(r.Parts[1]) != "" {
		t.Errorf("%q", s)
	}
}

func TestASmallMachineMakesNoClaimAboutServers(t *testing.T) {
	r := Analyse(experiment(1), runs(4))
	if !r.Parts[0].Claims || r.Parts[1].Claims {
		t.Errorf("claims: job %v, servers %v", r.Parts[0].Claims, r.Parts[1].Claims)
	}
	if s := sentences(r.Parts[0]); s[len(s)-1] != Decides(4) {
		t.Errorf("the job: %q do not say that there is no verdict", s)
	}
	if s := sentences(r.Parts[1]); len(s) != 1 || !strings.Contains(s[0], "too small") {
		t.Errorf("%q", s)
	}
	if heads := headsOf(r.Parts[1]); strings.Contains(heads, "requests") || !strings.Contains(heads, "waits") {
		t.Errorf("columns %s", heads)
	}
}

func TestVoidRunsDoNotCountAndWrongDigitsAreNamed(t *testing.T) {
	all := runs(2)
	all[0].Void = []string{"steal"}
	all[0].PiResult.Right = 9
	r := Analyse(experiment(2), all)
	if row := r.Parts[0].Modes[0]; row.Mode != Shared || row.Runs != 1 {
		t.Errorf("%s has %d runs", row.Mode, row.Runs)
	}
	if len(r.Void) != 1 || !strings.Contains(strings.Join(r.Warnings, " "), "only 9 of 20000 digits are right") {
		t.Errorf("void %q, warnings %q", r.Void, r.Warnings)
	}
}

func TestAnExperimentReadsBackAndMakesAPage(t *testing.T) {
	dir := t.TempDir()
	e := experiment(2)
	e.Schema, e.Kind = report.Schema, Kind
	if err := report.Create(dir, &e); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs(2) {
		if err := AddRun(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, report.RunsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"index": 99, "blo`) // a killed lab
	f.Close()
	found, err := report.Kinds{Kind: Open}.Rebuild(dir)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := found.Page().WriteText(&table); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{table.String(), string(page)} {
		if strings.Contains(text, "NaN") || !strings.Contains(text, "pinned-worst: no") || !strings.Contains(text, "shared-warm") {
			t.Errorf("%s", text)
		}
	}
	if n := strings.Count(string(page), "<svg"); n != 2 {
		t.Errorf("%d pictures", n)
	}
}

// TestEveryKeyIsDocumented checks that docs/lab-pinning.md names every key.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/lab-pinning.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{Result{}, Part{}, Row{}, Factor{}, Run{}, pi.Report{}, ClosedLoop{}, OpenLoop{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if key != "" && !strings.Contains(string(text), "`"+key+"`") {
				t.Errorf("docs/lab-pinning.md does not name the key %s of %s", key, typ.Name())
			}
		}
	}
}
