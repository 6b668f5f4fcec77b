package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/cluster/past/pull"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/decide/prospect"
)

// servePrometheus answers what tenon report asks about two nodes of 16 CPUs and 64 GiB
// that use 4 CPUs on average, more by day. The test of package pull compares its values
// with those of a real server. authorized counts the requests that have the header.
func servePrometheus(t *testing.T, header string, authorized *int) string {
	t.Helper()
	answer := func(w http.ResponseWriter, kind string, lines []map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		text, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": kind, "result": lines}})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(text) // the client may have gone
	}
	nodes := regexp.MustCompile(`node=~"([^"]*)"`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == header {
			*authorized++
		}
		text, lines := r.FormValue("query"), []map[string]any{}
		of := nodes.FindStringSubmatch(text)
		if strings.HasSuffix(r.URL.Path, "/query") { // about what the server has
			one := func(value string, labels map[string]string) {
				lines = append(lines, map[string]any{"metric": labels, "value": [2]any{1, value}})
			}
			for _, name := range []string{"hidden-a", "hidden-b"} {
				switch {
				case strings.Contains(text, "cluster"):
				case strings.Contains(text, "kube_node_info"), strings.HasPrefix(text, "count by (node)"):
					one("1", map[string]string{"node": name})
				case strings.Contains(text, "kube_node_status_capacity"):
					one("16", map[string]string{"node": name, "resource": "cpu"})
					one(strconv.Itoa(64<<30), map[string]string{"node": name, "resource": "memory"})
				case strings.HasPrefix(text, "count(") && !strings.Contains(text, "kube_pod_status_qos_class") && !strings.Contains(text, "kubernetes_io_batch") && !strings.Contains(text, "throttled_seconds") && name == "hidden-a":
					one("1", nil)
				}
			}
			answer(w, "vector", lines)
			return
		}
		number := func(name string) int64 {
			n, err := strconv.ParseInt(r.FormValue(name), 10, 64)
			if err != nil {
				t.Error(err)
			}
			return n
		}
		for name := range strings.SplitSeq(of[1], "|") {
			labels, scale := map[string]string{"node": name}, 1.0
			switch {
			case strings.Contains(text, "throttled"):
				maps.Copy(labels, map[string]string{"namespace": "hidden-shop", "pod": "hidden-web"})
			case strings.Contains(text, "working_set"):
				scale = 4 << 30
			case strings.Contains(text, "kube_pod_owner"):
				scale = 0.1
			}
			var values [][2]any
			for at := number("start"); at <= number("end"); at += number("step") {
				values = append(values, [2]any{at, fmt.Sprint(scale * (4 + 2*math.Sin(float64(at)/86400*2*math.Pi)))})
			}
			lines = append(lines, map[string]any{"metric": labels, "values": values})
		}
		answer(w, "matrix", lines)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestAReportOfPrometheusNeedsNothingInstalled reads two nodes, with a token, and again
// from what was kept, without names.
func TestAReportOfPrometheusNeedsNothingInstalled(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(envToken, "s3cr3t")
	authorized := 0
	url := servePrometheus(t, "Bearer s3cr3t", &authorized)
	html := filepath.Join(t.TempDir(), "report.html")
	got, err := reportOf(t, "--prometheus", url, "--html", html)
	if err != nil {
		t.Fatal(err)
	}
	asked := authorized
	words := strings.Join(strings.Fields(got), " ")
	for _, want := range []string{"The 2 nodes that Prometheus knows", "from 2026-03-09 00:00 to 2026-03-16 00:00 UTC", "11.2 of 32.0 CPUs on average", "hidden-shop/hidden-web", "CPU is a mean over 5 minutes"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	again, err := reportOf(t, "--prometheus", url, "--anonymous", "--html", html, "-o", "json")
	if err != nil || authorized != asked || asked < 30 {
		t.Fatalf("%d queries, then %d: %v", asked, authorized-asked, err)
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(again+string(page), "hidden") || !strings.Contains(again, "namespace-1/service-1") {
		t.Errorf("a name is left, or no number is there: %s", again)
	}
	var f prospect.Fleet
	if err := json.Unmarshal([]byte(again), &f); err != nil || f.Nodes != 2 || f.CPU.All.Mean < 11_150 || f.CPU.All.Mean > 11_250 {
		t.Errorf("%+v, %v", f, err)
	}
	if strings.Contains(got+again+string(page), "s3cr3t") {
		t.Error("the token is printed")
	}
	one, err := reportOf(t, "--prometheus", url, "--sample", "1", "--keep", "other")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(one), " "), "The node drawn of the 2 that Prometheus knows") {
		t.Errorf("%v:\n%s", err, one)
	}
	if _, err := reportOf(t, "--prometheus", url, "--days", "2", "--keep", "other"); err == nil {
		t.Error("a directory of other options is used")
	}
}

// TestThePageSaysWhichNodesAreNotInIt has nodes that are gone, without a size, and drawn.
func TestThePageSaysWhichNodesAreNotInIt(t *testing.T) {
	const drawn, unsized = "All sums are of the drawn nodes.", "2 nodes are left out, because no series has their size."
	for want, s := range map[string]pull.Summary{
		"The 8 nodes that Prometheus knows: ":                                                                                  {Known: 8, Read: 8},
		"The 8 nodes that Prometheus knows: " + unsized:                                                                        {Known: 10, Unsized: 2, Read: 8},
		"The 3 nodes drawn of the 10 that Prometheus knows: " + drawn:                                                          {Known: 10, Unsized: 2, Read: 3},
		"The 8 nodes that Prometheus knows: 1 node was gone at the end and is left out: others may have taken their place.":    {Known: 8, Gone: 1, Read: 8},
		"The 8 nodes that Prometheus knows: 7 nodes were gone at the end and are left out: others may have taken their place.": {Known: 8, Gone: 7, Read: 8},
	} {
		notes := strings.Join(notesOf(s), " ")
		subject, note, _ := strings.Cut(want, ": ")
		if subjectOf(s) != subject || !strings.Contains(notes, note) || strings.Contains(notes, drawn) != s.Drawn() || strings.Contains(notes, "gone") != (s.Gone > 0) {
			t.Errorf("%s: %s", subjectOf(s), notes)
		}
	}
}

// TestAReportOfATable reads a file with a mapping, and one with a fault.
func TestAReportOfATable(t *testing.T) {
	var text strings.Builder
	text.WriteString("ts,machine,cores,size\n")
	for i := range 8 * 288 {
		fmt.Fprintf(&text, "%d,m-1,%d,16\n%d,m-2,2,16\n", i*300, 2+i/12%2*4, i*300)
	}
	file := filepath.Join(t.TempDir(), "usage.csv")
	const mapping = "time=ts,node=machine,cpu=cores,capacity=size"
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := reportOf(t, "--csv", file, "--map", mapping)
	if words := strings.Join(strings.Fields(got), " "); err != nil || !strings.Contains(words, "The 2 nodes of usage.csv") || !strings.Contains(words, "13.2 of 32.0 CPUs on average") {
		t.Errorf("%v:\n%s", err, got)
	}
	html, err := reportOf(t, "--csv", file, "--map", mapping, "--html", "-")
	if err != nil || !strings.HasPrefix(strings.ToLower(html), "<!doctype html>") || !strings.HasSuffix(strings.TrimSpace(html), "</html>") {
		t.Errorf("%v:\n%.200s", err, html)
	}
	if _, err := reportOf(t, "--csv", file, "--map", mapping, "--html", file); cmdline.ExitStatus(err) != cmdline.ExitUsage {
		t.Errorf("the table is overwritten: %v", err)
	}
	if _, err := reportOf(t, "--csv", "none", "--map", mapping, "--html", filepath.Join(t.TempDir(), "none", "x")); err == nil || !strings.HasPrefix(err.Error(), "--html") {
		t.Errorf("the work comes before the directory that is not there: %v", err)
	}
	if err := os.WriteFile(file, []byte(text.String()+fmt.Sprintf("%d,m-1,2,1600\n%d,m-1,2,16\n", 8*86400, 8*86400+300)), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = reportOf(t, "--csv", file, "--map", mapping)
	if words := strings.Join(strings.Fields(got), " "); err != nil || !strings.Contains(words, "of 32.0 CPUs on average") || !strings.Contains(words, "1 node has lines with several capacities") {
		t.Errorf("%v:\n%s", err, got)
	}
	got, err = reportOf(t, "--csv", file, "--map", mapping, "--step", "1m")
	if words := strings.Join(strings.Fields(got), " "); err != nil || !strings.Contains(words, "--step 5m fits") {
		t.Errorf("%v:\n%s", err, got)
	}
	if err := os.WriteFile(file, []byte(text.String()+"never,m-1,1,16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := reportOf(t, "--csv", file, "--map", mapping); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line %d, time", 2+2*8*288)) {
		t.Error(err)
	}
}

// TestFlagsOfAnotherSourceAreRefused tries flags that do not go together. No error has
// what may be a password.
func TestFlagsOfAnotherSourceAreRefused(t *testing.T) {
	const at = "http://127.0.0.1:1"
	for _, args := range [][]string{
		{"--days", "3"}, {"--prometheus-user", "me"}, {"--map", "time=t"}, {"--step", "10m"}, {"--anonymous"}, {"--prometheus", at, "--csv", "x"}, {"--prometheus", at, "--since", "2h"},
		{"--prometheus", at, "--map", "x"}, {"--csv", "x"}, {"--csv", "x", "--map", "time"}, {"--csv", "x", "--map", "time=t,cpu=c,capacity=k", "--price", "1"}, {"--html", "-", "-o", "json"}, {"--html="}, {"--csv", "x", "--map", "time=t,cpu=c,capacity=k", "--sample", "3"},
		{"--prometheus", at, "--step", "7m"}, {"--prometheus", at, "--step", "90s"}, {"--prometheus", at, "--days", "0"}, {"--prometheus", at, "--sample", "-1"},
		{"--prometheus", "prometheus:9090"}, {"--prometheus", "http://me:s3cr3t@host"}, {"--prometheus", "http://host/?token=s3cr3t"}, {"--prometheus", "http://me:s3cr3t@[host"},
		{"--prometheus", at, "--prometheus-user", "me"}, {"--prometheus", at, "--prometheus-user", "me", "--prometheus-password-file", "x", "--prometheus-token-file", "y"},
		{"--prometheus", at, "--prometheus-ca-file", "x"}, {"--prometheus", at, "--match", `a b=c`}, {"--prometheus", at, "--node-label", `a"b`}, {"--match", "a=b"},
	} {
		_, err := reportOf(t, args...)
		if cmdline.ExitStatus(err) != cmdline.ExitUsage || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestASourceWithoutAValueSaysSo has an empty variable of a shell in place of the source.
func TestASourceWithoutAValueSaysSo(t *testing.T) {
	for _, flag := range []string{"--csv", "--prometheus"} {
		if _, err := reportOf(t, flag, ""); cmdline.ExitStatus(err) != cmdline.ExitUsage || !strings.HasPrefix(err.Error(), flag+` "": want `) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
