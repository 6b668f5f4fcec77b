package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/outlookreport"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/unit"
)

const pathReports = "/apis/tenon.sh/v1alpha1/nodereports"

// reportOf returns a report with the outlook of a week: 8 CPUs, of which batch work could
// have 2 and 4 by turns, and promises of which 60 of 100 were kept.
func reportOf(name string, reported time.Time) v1alpha1.NodeReport {
	n := prospect.Node{CPU: 8000, Memory: 32 << 30, Step: 1, Start: 29_000_160}
	for i := range int64(7 * 24 * 60) {
		n.RoomCPU, n.RoomMemory = append(n.RoomCPU, 2000+i/60%2*2000), append(n.RoomMemory, 8192)
	}
	n.Hurt = []prospect.Hurt{{Service: "shop/web", By: "logging/agent", Minutes: 100, Lost: time.Minute}, {Service: "ads/bidder", Minutes: 10, Lost: time.Hour}}
	r := v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Status.Reported = metav1.NewMicroTime(reported)
	r.Status.Outlook = outlookreport.Convert(prospect.Summarize(n))
	amount := quantity.OfCPU(1500)
	size := quantity.OfMemory(4 << 30)
	for _, hours := range []int32{1, 6, 24} {
		one := v1alpha1.PromisedAmount{Hours: hours, Percent: 90, Amount: &amount, Judged: 1000, Kept: 600}
		r.Status.Promises = addPromise(r.Status.Promises, one, v1alpha1.PromisedAmount{Hours: hours, Percent: 90, Amount: &size, Judged: 1000, Kept: 900})
	}
	return r
}

func addPromise(p *v1alpha1.Promises, cpu, memory v1alpha1.PromisedAmount) *v1alpha1.Promises {
	if p == nil {
		p = &v1alpha1.Promises{}
	}
	return &v1alpha1.Promises{CPU: append(p.CPU, cpu), Memory: append(p.Memory, memory)}
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func listOf(t testing.TB, all ...v1alpha1.NodeReport) string {
	return jsonOf(t, v1alpha1.NodeReportList{TypeMeta: metav1.TypeMeta{Kind: "NodeReportList", APIVersion: "tenon.sh/v1alpha1"}, Items: all})
}

// fleetPaths has two nodes with an outlook, a silent one, and one without a history.
func fleetPaths(t *testing.T) map[string]string {
	t.Helper()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	without := reportOf("node-4", now)
	without.Status.Outlook = nil
	labelled := `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": [{"metadata": {"name": "node-1", "labels": {"pool": "web"}}}, {"metadata": {"name": "node-2", "labels": {"pool": "db"}}}]}`
	return map[string]string{
		pathReports: listOf(t, reportOf("node-1", now), reportOf("node-2", now), reportOf("node-3", now.Add(-time.Hour)), without),
		pathReports + "/node-2": jsonOf(t, func() v1alpha1.NodeReport {
			r := reportOf("node-2", now)
			r.TypeMeta = metav1.TypeMeta{Kind: "NodeReport", APIVersion: "tenon.sh/v1alpha1"}
			return r
		}()),
		"/api/v1/nodes": labelled,
	}
}

// TestTheReportAddsUpTheNodes has nodes of which batch work could have had 2 and 4 CPUs by
// turns: 3 on average.
func TestTheReportAddsUpTheNodes(t *testing.T) {
	paths := fleetPaths(t)
	for line, want := range map[string][]string{
		"report": {"1 node not counted, because the agent is silent: node-3\n", "1 node not counted, because the agent keeps no history, or has not read it yet: node-4\n",
			"2 nodes of the cluster were observed for 7 days", "6.0 of 16.0 CPUs on average", "shop/web", "logging/agent", "ads/bidder", "(its own CPU limit)"},
		"report --node node-2":   {"Node node-2 was observed for 7 days", "3.0 of 8.0 CPUs on average"},
		"report --pool pool=web": {"1 node of pool web was observed", "3.0 of 8.0 CPUs on average"},
		"report --kept":          {"What 2 nodes of the cluster promised", "12000 promises have ended", "2 nodes kept a kind of promise clearly less often than said", "node-1"},
		"report --html -":        {"<!DOCTYPE html>", "6.0 of 16.0 CPUs on average"},
		"report --kept --html -": {"<!DOCTYPE html>", "Kept less often than said"},
		"report -o yaml":         {"nodes: 2\n", "silent_nodes:\n", "nodes_without_outlook:\n"},
	} {
		out, err := kubectl(t, paths, strings.Fields(line)...)
		for _, part := range want {
			if err != nil || !strings.Contains(strings.ReplaceAll(strings.ToLower(out), "\n", " "), strings.ReplaceAll(strings.ToLower(part), "\n", " ")) {
				t.Errorf("%s: %v, want %q in\n%s", line, err, part, out)
			}
		}
	}
	out, err := kubectl(t, paths, "report", "-o", "json")
	_, text, _ := strings.Cut(out, "{")
	var data struct {
		Nodes int
		CPU   prospect.Supply[unit.MilliCPU] `json:"cpu_mcpu"`
	}
	if err != nil || json.Unmarshal([]byte("{"+text), &data) != nil || data.Nodes != 2 || data.CPU.All.Low != 4000 || data.CPU.All.Mean != 6000 {
		t.Errorf("%v: %+v", err, data)
	}
	if _, err := kubectl(t, with(paths, pathReports, refusal(403, "Forbidden", "no")), "report", "--html", filepath.Join(t.TempDir(), "none", "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if out, err := kubectl(t, paths, "report", "--html", file); err != nil || !strings.Contains(out, "wrote "+file) {
		t.Errorf("%v\n%s", err, out)
	}
	if page, err := os.ReadFile(file); err != nil || !strings.Contains(string(page), "<svg") {
		t.Errorf("the page has no picture: %v", err)
	}
}

// TestNoNameOfANodeMovesTheCursor has nodes of each kind with names that an API server
// should refuse.
func TestNoNameOfANodeMovesTheCursor(t *testing.T) {
	const bad = "\x1b[2J\u202e"
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	without := reportOf("none"+bad, now)
	without.Status.Outlook = nil
	paths := with(installed, pathReports, listOf(t, reportOf("counts"+bad, now), reportOf("silent"+bad, now.Add(-time.Hour)), without))
	paths["/api/v1/nodes"] = `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": [{"metadata": {"name": ` + jsonOf(t, "counts"+bad) + `, "labels": {"pool": ` + jsonOf(t, bad) + `}}}]}`
	for _, args := range [][]string{{}, {"--kept"}, {"--html", "-"}, {"--kept", "--html", "-"}, {"-o", "json"}, {"--kept", "-o", "yaml"}, {"--pool", "pool=" + bad, "--html", "-"}} {
		out, err := kubectl(t, paths, append([]string{"report"}, args...)...)
		if err != nil || strings.ContainsAny(out, bad[:1]+"\u202e") || len(args) < 2 && !strings.Contains(out, `silent\x1b[2J\u202e`) {
			t.Errorf("%q: %v\n%q", args, err, out)
		}
	}
}

func TestAReportThatIsNotThereHasAReason(t *testing.T) {
	paths := fleetPaths(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	no := refusal(403, "Forbidden", "no")
	for line, x := range map[string]struct {
		paths map[string]string
		want  string
	}{
		"report":                               {installed, "no node has an outlook: 1 node without one: tenond makes it of its history"},
		"report --kept":                        {with(paths, pathReports, listOf(t)), "no node has an outlook: no agent of Tenon reports"},
		"report --node node-9":                 {paths, `there is no report of a node "node-9"`},
		"report --pool pool=x":                 {paths, "no node has the label pool=x"},
		"report --pool pool=web":               {with(paths, "/api/v1/nodes", no), "--pool reads the labels of nodes, and you may not list nodes: an administrator can bind the ClusterRole tenon-viewer to you"},
		"report --html x":                      {with(paths, pathReports, no), "you may not list nodereports.tenon.sh: an administrator can bind"},
		"report --node node-2 --pool pool=web": {paths, `node "node-2" does not have the label pool=web`},
		"report --pool pool=db":                {with(paths, pathReports, listOf(t, reportOf("node-1", at))), "no node with the label pool=db has a report"},
		"report -o yaml":                       {with(paths, pathReports, listOf(t, reportOf("node-1", at.Add(-time.Hour)))), "the agent is silent on 1 node"},
		"report --pool pool":                   {paths, `--pool "pool": want LABEL=VALUE`},
		"report --pool=":                       {paths, `--pool "": want LABEL=VALUE`},
		"report -o json --html x":              {paths, "want one of -o json and --html"},
		"report --pool =web":                   {paths, `--pool "=web": want LABEL=VALUE`},
		"report --html= --kept":                {paths, `--html "": want a file`},
	} {
		_, err := kubectl(t, x.paths, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", line, err, x.want)
		}
		usage := strings.Contains(x.want, "want")
		if (cmdline.ExitStatus(err) == cmdline.ExitUsage) != usage {
			t.Errorf("%s: status %d", line, cmdline.ExitStatus(err))
		}
	}
}

// TestAReportOfAWrongTypeNamesItsNode has one among others, as another version may write it.
func TestAReportOfAWrongTypeNamesItsNode(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	list := listOf(t, reportOf("node-1", now), reportOf("node-2", now), reportOf("node-3", now))
	first, second, _ := strings.Cut(list, `"name":"node-2"`)
	wrong := first + `"name":"node-2"` + strings.Replace(second, `"stepMinutes":1`, `"stepMinutes":"one"`, 1)
	_, err := kubectl(t, with(installed, pathReports, wrong), "report")
	if err == nil || !strings.Contains(err.Error(), `the report of node "node-2"`) || strings.Contains(err.Error(), "chart brings") {
		t.Errorf("%v", err)
	}
}

// serveFleet starts an API server with many reports, which it sends in pages as an API
// server does. asked has the limit of each request. It returns the path of its kubeconfig
// and the size of a report.
func serveFleet(t testing.TB, nodes int, asked *[]int) (kubeconfig string, bytes int) {
	t.Helper()
	r := reportOf("NAME", time.Now())
	// What a report of a busy node has besides, which the plugin does not read.
	r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "tenond", FieldsV1: metav1.NewFieldsV1(`{"f:status":{` + strings.TrimSuffix(strings.Repeat(`"f:field":{"f:of":{}},`, 200), ",") + `}}`)}}
	for i := range 40 {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Condition%d", i), Status: metav1.ConditionTrue, Reason: "Reason", Message: strings.Repeat("a message ", 10)})
	}
	one := jsonOf(t, r)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != pathReports {
			fmt.Fprint(w, `{"kind": "PodList", "apiVersion": "v1", "items": []}`)
			return
		}
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil {
			limit = nodes
		}
		*asked = append(*asked, limit)
		first, _ := strconv.Atoi(r.URL.Query().Get("continue")) // "" is the first page
		last, next := min(first+limit, nodes), ""
		if last < nodes {
			next = strconv.Itoa(last)
		}
		fmt.Fprintf(w, `{"kind": "NodeReportList", "apiVersion": "tenon.sh/v1alpha1", "metadata": {"continue": %q}, "items": [`, next)
		for i := first; i < last; i++ {
			if i > first {
				fmt.Fprint(w, ",")
			}
			fmt.Fprint(w, strings.Replace(one, "NAME", fmt.Sprintf("node-%d", i), 1))
		}
		fmt.Fprint(w, "]}")
	}))
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config, len(one)
}

// TestAReportOfManyNodesIsReadInPages: an answer with all reports of a large cluster would
// have a hundred MB.
func TestAReportOfManyNodesIsReadInPages(t *testing.T) {
	var asked []int
	config, _ := serveFleet(t, 1100, &asked)
	var out strings.Builder
	root := newRootCommand(time.Now)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"report", "--kubeconfig", config})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if want := []int{pageSize, pageSize, pageSize}; !reflect.DeepEqual(asked, want) || !strings.Contains(out.String(), "1100 nodes of the cluster") || !strings.Contains(out.String(), "of 8800 CPUs") {
		t.Errorf("asked for %v\n%s", asked, out.String())
	}
}

// BenchmarkReportOf5000Nodes runs the plugin in a process of its own, and reports its peak
// of resident memory.
func BenchmarkReportOf5000Nodes(b *testing.B) {
	var asked []int
	config, size := serveFleet(b, 5000, &asked)
	var most int64
	b.ResetTimer()
	for b.Loop() {
		cmd := testProcess(b, "report", "--kubeconfig", config)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "5000 nodes of the cluster") {
			b.Fatalf("%v\n%s", err, out)
		}
		if usage, is := cmd.ProcessState.SysUsage().(*syscall.Rusage); is {
			most = max(most, usage.Maxrss)
		}
	}
	b.ReportMetric(float64(most)/1024, "MiB-peak")
	b.ReportMetric(float64(size), "B/report")
}

// asPlugin is the variable of the environment that makes the test program the plugin.
const asPlugin = "TENON_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		if err := newRootCommand(time.Now).Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testProcess returns the plugin as a process.
func testProcess(t testing.TB, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asPlugin+"=1")
	return cmd
}
