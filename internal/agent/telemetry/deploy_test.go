package telemetry

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	dashboard = "../../../deploy/grafana/tenon.json"
	alerts    = "../../../deploy/prometheus/alerts.yaml"
	cluster   = "../../../deploy/prometheus/cluster-alerts.yaml"
	koordlet  = "../../../deploy/prometheus/koordlet-names.yaml"
)

// TestDashboardAndAlertsAskForMetricsThatExist checks that the dashboard and
// the alerts use only existing metrics. Those of the manager stand in docs/manager.md.
func TestDashboardAndAlertsAskForMetricsThatExist(t *testing.T) {
	exist := names(t)
	page, err := os.ReadFile("../../../docs/manager.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(tenon_manager_\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		exist[m[1]] = true
	}
	for _, file := range []string{dashboard, alerts, koordlet} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		asked := regexp.MustCompile(`tenon_[a-z0-9_]+`).FindAllString(string(text), -1)
		if len(asked) < 5 {
			t.Errorf("%s asks for %v", file, asked)
		}
		for _, name := range asked {
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
			if !exist[name] && !exist[base] {
				t.Errorf("%s asks for %s, which does not exist", file, name)
			}
		}
	}
}

// TestTheDashboardLoads checks what Grafana requires: JSON with a schema, and
// panels that have unique ids and do not overlap.
func TestTheDashboardLoads(t *testing.T) {
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title         string
		UID           string
		SchemaVersion int
		Panels        []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 36 || len(d.Panels) < 6 {
		t.Errorf("%+v", d)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.Title == "" || p.Type == "" || ids[p.ID] || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %+v", p)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q overlaps %q or lies outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			if target.Expr == "" || target.RefID == "" {
				t.Errorf("panel %q: target %+v", p.Title, target)
			}
		}
	}
}

// TestTheAlertRulesLoad checks the rules with promtool, the checker of
// Prometheus.
func TestTheAlertRulesLoad(t *testing.T) {
	promtool := findPromtool(t)
	if out, err := exec.Command(promtool, "check", "rules", alerts, cluster, koordlet).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// promtool checks only rules. Therefore make a rule of each expression of
	// the dashboard.
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for i, m := range regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(string(text), -1) {
		rules += fmt.Sprintf("  - record: panel_%d\n    expr: %s\n", i, strings.ReplaceAll(m[1], "$__rate_interval", "1m"))
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// findPromtool returns the path of promtool, or skips the test.
func findPromtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatal("strict: promtool must be installed (Debian: prometheus)")
		}
		t.Skip("promtool is not installed (Debian: prometheus)")
	}
	return path
}

// TestTheReasonsOfASourceAreListed compares the page of the metrics with the words that
// the label trouble may have.
func TestTheReasonsOfASourceAreListed(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("../../model/node/objective.go")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile("(?s)\\*\\*`trouble`\\*\\* of .*? is one of (.*?)\\. ").FindSubmatch(page)
	if list == nil {
		t.Fatal("docs/metrics.md has no list of the reasons")
	}
	var listed, has []string
	for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllSubmatch(list[1], -1) {
		listed = append(listed, string(m[1]))
	}
	for _, m := range regexp.MustCompile(`Trouble\w+ +SourceTrouble = "([a-z-]+)"`).FindAllSubmatch(code, -1) {
		has = append(has, string(m[1]))
	}
	slices.Sort(listed)
	slices.Sort(has)
	if len(has) < 20 || !slices.Equal(listed, has) {
		t.Errorf("docs/metrics.md lists %v, want %v", listed, has)
	}
}

// TestKoordletsNamesAreRecorded evaluates the recording rules with promtool.
// The result must contain the metrics that a dashboard for koordlet reads. The
// rules must also match the table of docs/metrics.md.
func TestKoordletsNamesAreRecorded(t *testing.T) {
	rules, err := os.ReadFile(koordlet)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for _, m := range regexp.MustCompile(`record: (koordlet_\w+)`).FindAllStringSubmatch(string(rules), -1) {
		recorded[m[1]] = true
	}
	exist := names(t)
	rows := regexp.MustCompile("(?m)^\\| `(koordlet_\\w+)`[^|]*\\|([^|]*)\\| (yes|no) \\|").FindAllStringSubmatch(string(page), -1)
	listed := map[string]bool{}
	for _, row := range rows {
		listed[row[1]] = row[3] == "yes"
		for _, name := range regexp.MustCompile(`tenon_[a-z0-9_]+`).FindAllString(row[2], -1) {
			if !exist[name] {
				t.Errorf("docs/metrics.md names %s for %s, which does not exist", name, row[1])
			}
		}
	}
	for name, has := range listed {
		if has != recorded[name] {
			t.Errorf("%s: docs/metrics.md says that it is recorded: %v; the rules say %v", name, has, recorded[name])
		}
	}
	for name := range recorded {
		if !listed[name] {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
	promtool := findPromtool(t)
	dir := t.TempDir()
	tests, err := os.ReadFile("testdata/koordlet-names.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"koordlet-names.yaml": rules, "test.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "test.yaml")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
