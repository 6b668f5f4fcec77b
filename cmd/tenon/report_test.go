package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/history"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/node"
)

var update = flag.Bool("update", false, "write the report of the test into docs/how-much.md")

// weekEnds is the time at which the reports of these tests are made.
var weekEnds = time.Date(2026, 3, 16, 0, 0, 0, 0, time.UTC)

// row makes a row of the history. Columns that it does not name are absent.
func row(k history.Kind, name string, columns map[string]int64) history.Row {
	values := slices.Repeat([]int64{history.Absent}, len(history.Columns[k]))
	for column, v := range columns {
		values[history.Column(k, column)] = v
	}
	return history.Row{Name: name, Values: values}
}

// makeWeeks writes the history of a node of 16 CPUs: a shop that is busy by day and
// less so on weekends, a cache that its own limit holds back, and builds at night that run as a service. An hour of the
// fourth day was not seen.
func makeWeeks(t *testing.T, dir string, days int) {
	t.Helper()
	store, err := history.Open(dir, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	level := 0.0
	class := int64(slices.Index(node.Classes[:], node.LS))
	for m := range days * 24 * 60 {
		level = 0.995*level + 0.1*rnd.NormFloat64()
		if day := m / (24 * 60); day == days-4 && m/60%24 == 5 {
			continue
		}
		hour := float64(m%(24*60)) / 60
		busy := 4000 + 2400*math.Sin(2*math.Pi*(hour-9)/24) + 500*level
		if day := weekEnds.AddDate(0, 0, m/(24*60)-days).Weekday(); day == time.Saturday || day == time.Sunday {
			busy *= 0.5
		}
		shop := int64(max(busy+150*rnd.NormFloat64(), 300))
		build := int64(0)
		if hour >= 1 && hour < 4 {
			build = 3000 + int64(200*rnd.NormFloat64())
		}
		used := shop + build + 400
		at := weekEnds.Unix()/60 - int64(days*24*60) + int64(m)
		minute := history.Minute{At: at}
		memory := 21_000 + int64(2000*math.Sin(2*math.Pi*(hour-9)/24)+300*level)
		minute.Rows[history.Node] = []history.Row{row(history.Node, "", map[string]int64{
			"cpu_mcpu": used, "working_set_mib": memory, "room_cpu_mcpu": max(9600-used-used/10, 0), "room_memory_mib": 41_000 - memory,
		})}
		web := map[string]int64{"class": class, "cpu_mcpu": shop, "throttled_ms": 0}
		cache := map[string]int64{"class": class, "cpu_mcpu": 200, "throttled_ms": 0}
		if hour >= 12 && hour < 15 {
			cache["throttled_ms"] = 400 + rnd.Int64N(300)
		}
		minute.Rows[history.Work] = []history.Row{
			row(history.Work, "system.slice/shop.service", web), row(history.Work, "system.slice/cache.service", cache),
			row(history.Work, "system.slice/build.service", map[string]int64{"class": class, "cpu_mcpu": build}),
		}
		if build > 0 {
			minute.Rows[history.Pair] = []history.Row{row(history.Pair,
				history.PairName("system.slice/shop.service", "system.slice/build.service"), map[string]int64{"wait_ms": 150 + rnd.Int64N(200)})}
		}
		if err := store.Append(minute); err != nil {
			t.Fatal(err)
		}
	}
}

// reportOf runs tenon report at the end of the weeks.
func reportOf(t *testing.T, args ...string) (text string, err error) {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"report"}, args...))
	now = func() time.Time { return weekEnds }
	t.Cleanup(func() { now = time.Now })
	err = root.Execute()
	return out.String(), err
}

// TestTheReportIsThatOfTheDocumentation also checks that the text fits a terminal.
func TestTheReportIsThatOfTheDocumentation(t *testing.T) {
	dir := t.TempDir()
	makeWeeks(t, dir, 15)
	got, err := reportOf(t, "--dir", dir, "--cpus", "16", "--memory", "64Gi", "--batch", "build.service")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(got) {
		if n := textlayout.Columns(strings.TrimSuffix(line, "\n")); n > textlayout.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	got = strings.Replace(got, "Node "+host, "Node web-1", 1)
	const file = "../../docs/how-much.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)(```text\n\\$ sudo tenon report [^\n]*\n)(.*?)(```)")
	if *update {
		page = block.ReplaceAllFunc(page, func(old []byte) []byte {
			first, _, _ := bytes.Cut(old[len("```text\n"):], []byte("\n"))
			return slices.Concat([]byte("```text\n"), first, []byte("\n"), []byte(got), []byte("```"))
		})
		if err := os.WriteFile(file, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shown := block.FindSubmatch(page)
	if shown == nil || string(shown[2]) != got {
		t.Errorf("docs/how-much.md does not show this report; go test ./cmd/tenon -run %s -update writes it:\n%s", t.Name(), got)
	}
}

// TestTheReportIsTheSameInEachForm: JSON has the values, and HTML is one file that is well
// formed, has the pictures, and refers to nothing outside.
func TestTheReportIsTheSameInEachForm(t *testing.T) {
	dir, html := t.TempDir(), filepath.Join(t.TempDir(), "report.html")
	makeWeeks(t, dir, 9)
	got, err := reportOf(t, "--dir", dir, "--cpus", "16", "--memory", "64Gi", "-o", "json", "--html", html, "--since", "240h")
	if err != nil {
		t.Fatal(err)
	}
	var f prospect.Fleet
	if err := json.Unmarshal([]byte(got), &f); err != nil {
		t.Fatal(err)
	}
	if f.CPU.Capacity != 16_000 || f.CPU.All.Steps != 9*24*60-60 || f.Saving.Code != prospect.BatchUnknown || len(f.Hurt) != 2 {
		t.Errorf("%+v", f)
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(page, []byte("<svg viewBox")); n < 5 {
		t.Errorf("%d pictures", n)
	}
	for _, bad := range []string{"NaN", "Inf", "<script", "http:", "https:", "src=", "@import", "url("} {
		if bytes.Contains(page, []byte(bad)) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, picture := range regexp.MustCompile(`(?s)<svg viewBox.*?</svg>`).FindAll(page, -1) {
		d := xml.NewDecoder(bytes.NewReader(picture))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, picture)
			}
		}
	}
}

// TestAReportWithoutHistorySaysHowToGetOne also tries flags that are wrong.
func TestAReportWithoutHistorySaysHowToGetOne(t *testing.T) {
	empty := t.TempDir()
	setObserversDir(t, filepath.Join(empty, "missing"))
	none, some := filepath.Join(empty, "none.yaml"), filepath.Join(empty, "some.yaml")
	for file, text := range map[string]string{none: "", some: "history: {directory: " + empty + "}\n"} {
		if err := os.WriteFile(file, []byte("apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	without := [][]string{{"--dir", empty}, {"--dir", filepath.Join(empty, "missing")}, {"--config", none}, {"--config", some}}
	if _, err := os.Stat(defaultConfig); errors.Is(err, os.ErrNotExist) {
		without = append(without, nil) // tenond may have another file and --observe
	}
	for _, args := range without {
		if _, err := reportOf(t, args...); err == nil || !strings.Contains(err.Error(), howToKeep) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, err := reportOf(t, "--config", filepath.Join(empty, "missing.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a configuration that is not there: %v", err)
	}
	for _, args := range [][]string{
		{"--since", "1m"}, {"--price", "0"}, {"--price", "NaN"}, {"--html", ""}, {"--dir", empty, "--config", none}, {"--batch", "["}, {"--batch", ""}, {"x"},
	} {
		if _, err := reportOf(t, args...); cmdline.ExitStatus(err) != cmdline.ExitUsage {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// setObserversDir sets the directory of a history that the configuration does not name.
func setObserversDir(t *testing.T, dir string) {
	t.Helper()
	before := observersDir
	observersDir = dir
	t.Cleanup(func() { observersDir = before })
}

// TestAnObserverHasAReport: its tenond keeps a history that the configuration does not
// name, also if only the flag --observe makes it observe.
func TestAnObserverHasAReport(t *testing.T) {
	if observersDir != config.HistoryDirectory {
		t.Errorf("tenon report looks into %s, and tenond writes into %s", observersDir, config.HistoryDirectory)
	}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "tenon.yaml")
	makeWeeks(t, dir, 5)
	setObserversDir(t, dir)
	for _, text := range []string{"observe: true\n", ""} {
		if err := os.WriteFile(file, []byte("apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		var f prospect.Fleet
		got, err := reportOf(t, "--config", file, "-o", "json")
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if err := json.Unmarshal([]byte(got), &f); err != nil || f.Seen != 5*24*60-60 {
			t.Errorf("%q: %v, %d minutes", text, err, f.Seen)
		}
	}
}

// TestAReportIsMadeOfWhatThereIs: hours without room, hours only, and a name that would
// change the terminal.
func TestAReportIsMadeOfWhatThereIs(t *testing.T) {
	dir := t.TempDir()
	store, err := history.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	class := int64(slices.Index(node.Classes[:], node.LS))
	for m := range int64(90) {
		minute := history.Minute{At: weekEnds.Unix()/60 - 90 + m}
		minute.Rows[history.Node] = []history.Row{row(history.Node, "", map[string]int64{"cpu_mcpu": 1000})}
		minute.Rows[history.Work] = []history.Row{row(history.Work, "\x1b[31mred", map[string]int64{"class": class, "throttled_ms": 100})}
		if err := store.Append(minute); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	html := filepath.Join(t.TempDir(), "report.html")
	got, err := reportOf(t, "--dir", dir, "--html", html)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(got, '\x1b') || !strings.Contains(strings.Join(strings.Fields(got), " "), machineHints[prospect.GapRoomCPU]) {
		t.Errorf("%q", got)
	}
	page, err := os.ReadFile(html)
	if err != nil || bytes.Contains(page, []byte("NaN")) || bytes.ContainsRune(page, '\x1b') {
		t.Errorf("%v: %s", err, page)
	}
}
