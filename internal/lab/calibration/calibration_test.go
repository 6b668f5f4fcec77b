package main

import (
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestATraceIsReadByItsMapping reads one machine from files of two months, the
// later one first, and a file that names its machines.
func TestATraceIsReadByItsMapping(t *testing.T) {
	dir := t.TempDir()
	byFile := mapping{comma: ';', header: 1, time: 1, use: 3, capacity: 2, unit: time.Second, step: 5 * time.Minute, hold: 10 * time.Minute}
	later := write(t, filepath.Join(dir, "b", "1.csv"), "time;all;use\n4200;\t50; 7\n")
	first := write(t, filepath.Join(dir, "a", "1.csv"), "time;all;use\n3600;40;1\n3700;40;3\n3899;40;2\n3900;40;-1\n")
	all, err := read([]string{later, first}, byFile)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d machines: %v", len(all), err)
	}
	m := all[0]
	if m.name != "1.csv" || m.capacity != 50 || m.first != 12 || len(m.use) != 3 || m.use[0] != 3 || !math.IsNaN(m.use[1]) || m.use[2] != 7 {
		t.Errorf("%+v", m)
	}
	byColumn := mapping{comma: ',', time: 2, machine: 1, use: 3, full: 100, unit: time.Second, step: time.Minute}
	many := write(t, filepath.Join(dir, "usage.csv"), "m_2,0,20,\nm_1,60,30,\nm_2,60,,\n")
	if all, err = read([]string{many}, byColumn); err != nil || len(all) != 2 || all[0].name != "m_1" || all[1].capacity != 100 || len(all[1].use) != 1 {
		t.Errorf("%+v: %v", all, err)
	}
	for _, bad := range []string{"m_1,x,1\n", "m_1,1\n", "m_1,1,x\n"} {
		name := write(t, filepath.Join(dir, "bad.csv"), "m_1,0,1\n"+bad)
		if _, err := read([]string{name}, byColumn); err == nil || !strings.Contains(err.Error(), "bad.csv:2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestAMachineThatHasEndedUsesNothing also checks that the first step is at a full
// hour.
func TestAMachineThatHasEndedUsesNothing(t *testing.T) {
	nan := math.NaN()
	m := mapping{step: 20 * time.Minute, hold: 20 * time.Minute}
	short := &machine{capacity: 40, first: 4, use: []float64{20}}
	long := &machine{capacity: 60, first: 4, use: []float64{6, nan, 12, nan, nan, nan, 6}}
	r := roomOf([]*machine{long, short}, m, 50)
	want := []int64{noValue, 24_000, 24_000, 38_000, 38_000, noValue, noValue, 44_000}
	if r.hour != 1 || len(r.steps) != len(want) {
		t.Fatalf("%+v", r)
	}
	for i, v := range r.steps {
		if v != want[i] {
			t.Errorf("step %d has %d, want %d", i, v, want[i])
		}
	}
}

func TestATallyCountsWhatCame(t *testing.T) {
	nan := math.NaN()
	hourly := []float64{10, 10, 4, 10, nan, 10, 10, 10}
	w := windowsOf(hourly, 2)
	if got := w.past[4]; len(got) != 3 || got[0] != 4 || got[2] != 10 {
		t.Errorf("before hour 4 the windows %v had ended", got)
	}
	var c tally
	c.add([]float64{8, 5, 4, 9, 9, nan, 9, 9}, w, 23, []bool{true, true, true, true, true, true, true, true})
	// The windows of the hours 0, 1, 2 and 6 are known: 10, 4, 4 and 10.
	if c.judged != 4 || c.kept != 3 || c.promised != 26 || c.free != 28 || c.pairs != 2 || c.changed != 4 || c.before != 13 || c.steady != 0 {
		t.Errorf("%+v", c)
	}
	if c.byHour[23].kept != 1 || c.byHour[0].judged != 1 || c.byHour[0].kept != 0 {
		t.Errorf("by hour: %+v", c.byHour)
	}
}

// daily is the room of a node with a daily cycle, in steps of ten minutes.
func daily(days int, seed uint64) room {
	random := rand.New(rand.NewPCG(seed, 2))
	r, level := room{hour: 480_000}, 0.0
	for i := range days * 144 {
		level = 0.97*level + 0.25*random.NormFloat64()
		r.steps = append(r.steps, int64(max(40_000+9_000*math.Sin(2*math.Pi*float64(i)/144)+3_000*level, 0)))
	}
	return r
}

// TestAPercentileOfHistoryIsNotKept: the calibration has to find that a percentile
// of history fails where jobs are long, and that adaptive quantiles do not.
func TestAPercentileOfHistoryIsNotKept(t *testing.T) {
	r := newResult()
	for seed := range uint64(3) {
		r.add("node", evaluate(daily(90, seed), 10, true))
	}
	rows := map[string]row{}
	for _, row := range r.rows() {
		if row.hours == 24 && row.percent == 90 {
			rows[row.rival] = row
		}
	}
	if len(rows) != 1+len(rivals) {
		t.Fatalf("%d rivals", len(rows))
	}
	for name, row := range rows {
		low, high := 85.0, 95.0
		if name == "history" {
			low, high = 0, 50
		}
		if name == "aggregated" || name == "by-hour" {
			low = 75 // they promise too much where windows overlap
		}
		if c := row.coverage(); c < low || c > high || row.nodes != 3 {
			t.Errorf("%s: %.1f %% of %d are kept, on %d nodes", name, c, row.judged, row.nodes)
		}
		if row.judged != rows[tenon].judged {
			t.Errorf("%s is judged %d times, and %s %d times", name, row.judged, tenon, rows[tenon].judged)
		}
	}
}

func TestFewWindowsAreShownAndNotJudged(t *testing.T) {
	r := newResult()
	r.add("node", evaluate(daily(20, 1), 10, false))
	for _, row := range r.rows() {
		if judged := row.hours < 24; (row.nodes == 1) != judged || row.judged == 0 {
			t.Errorf("%d h: %d promises, %d nodes are judged", row.hours, row.judged, row.nodes)
		}
	}
	if !strings.Contains(r.text(), "not judged") {
		t.Error(r.text())
	}
}

func TestRunRefusesWhatItCannotRead(t *testing.T) {
	name := write(t, filepath.Join(t.TempDir(), "t.csv"), "0,1\n")
	for _, args := range [][]string{{"-use", "2"}, {name}, {"-use", "2", "-step", "7m", name}, {"-use", "2", "-comma", ";;", name}, {"-use", "2", name + "x"}} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	nodes := name + ".nodes"
	if err := run([]string{"-use", "2", "-nodes", nodes, name}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(nodes); err != nil || !strings.HasPrefix(string(text), "node,rival,") {
		t.Errorf("%s: %v", text, err)
	}
}
