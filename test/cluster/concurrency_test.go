package cluster

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clipFolder is the folder of the film in the image of the transcoding jobs.
const clipFolder = "/apps/ffmpeg/input"

// TestConcurrentJobsAreMeasuredOnACluster runs a grid of two numbers of jobs
// and two limits, and the chart of the published experiment. The table must be
// complete, and an import of the node's logs must give the same table. Nothing
// may be left, even after an interrupt.
func TestConcurrentJobsAreMeasuredOnACluster(t *testing.T) {
	needExperimentsTurn(t)
	runParallel(t)
	c, n := startCluster(t, "jobs")
	bin := filepath.Join(programs(t), "tenon")
	logs := keepLogs(t, n, "")

	out := filepath.Join(t.TempDir(), "results")
	grid := []string{"lab", "concurrency", "--kubernetes", "--strategies", "quota", "--jobs", "1,2", "--limits", "0.5,0.9", "--memory", "512Mi",
		"--blocks", "1", "--no-retry", "--work", "500ms", "--input", clipFolder + "/HD2-h264.ts"}
	begun := time.Now()
	said, err := c.Command(t.Context(), bin, append(grid, "--out", out)...).CombinedOutput()
	t.Logf("%.1f s\n%s", time.Since(begun).Seconds(), said)
	if err != nil {
		t.Fatal(err)
	}
	table := rowsOf(t, filepath.Join(out, "jobs.csv"))
	complete(t, n, table)
	nothingLeft(t, c)

	// The log of the job that calibrates belongs to no block.
	imported := filepath.Join(t.TempDir(), "imported")
	if said, err := c.Command(t.Context(), bin, "lab", "concurrency", "import", logs, "--out", imported).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	again := slices.DeleteFunc(rowsOf(t, filepath.Join(imported, "jobs.csv")), func(r map[string]string) bool { return r["Run"] == "" })
	if got, want := sorted(again), sorted(table); !slices.Equal(got, want) {
		t.Errorf("the import of the node's logs gives\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// Both wait for pods most of the time, each in a namespace of its own.
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		interruptRun(t, c, bin, append(grid, "--out", filepath.Join(t.TempDir(), "interrupted")))
	})
	t.Run("chart", func(t *testing.T) {
		t.Parallel()
		theTranscoderChart(t, c, n, bin)
	})
}

// keepLogs keeps the logs of the containers whose names begin with a prefix,
// after their pods on the node have ended. It returns the folder with the logs,
// which has the name of the node.
func keepLogs(t *testing.T, n *Node, prefix string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), n.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	varLog := filepath.Join(n.Dir, "varlog")
	keep := func() {
		links, _ := os.ReadDir(filepath.Join(varLog, "containers")) // the first pod makes it
		for _, l := range links {
			if to, err := os.Readlink(filepath.Join(varLog, "containers", l.Name())); err == nil && strings.HasPrefix(l.Name(), prefix) {
				_ = os.Link(filepath.Join(varLog, strings.TrimPrefix(to, "/var/log")), filepath.Join(dir, l.Name())) // once
			}
		}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			keep()
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	return dir
}

// rowsOf reads a table of jobs.
func rowsOf(t *testing.T, file string) []map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: %d lines: %v", file, len(all), err)
	}
	if head := strings.Join(all[0][:12], ","); head != "Host,Type,Concurrency,CPU,Memory,JobID,PodID,JobPodID,DockerID,TimeIn,TimeOut,Source" {
		t.Errorf("%s begins with the columns %s", file, head)
	}
	var rows []map[string]string
	for _, line := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func sorted(rows []map[string]string) []string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, fmt.Sprint(r)) // fmt sorts the keys
	}
	slices.Sort(lines)
	return lines
}

// complete checks the rows of the grid. It compares no times. A job may even be
// void if it or another job of its run began late.
func complete(t *testing.T, n *Node, table []map[string]string) {
	t.Helper()
	cells := map[string]int{}
	for _, r := range table {
		cells[r["Strategy"]+" "+r["Concurrency"]+" "+r["CPU"]+" "+r["Memory"]]++
		number := func(column string) float64 {
			v, err := strconv.ParseFloat(r[column], 64)
			if err != nil {
				t.Errorf("column %s is %q: %v", column, r[column], r)
			}
			return v
		}
		if r["Host"] != n.Name || len(r["DockerID"]) != 64 || r["Source"] != "HD2-h264.ts" || r["Void"] != "" && !strings.HasPrefix(r["Void"], "it began ") && !strings.HasSuffix(r["Void"], "void ran beside it") {
			t.Errorf("row %v", r)
		}
		if number("TimeOutNs") <= number("TimeInNs") || number("TimeOut") < number("TimeIn") || number("Work") <= 0 || number("CPUSeconds") <= 0 || number("PeakMemory") <= 0 {
			t.Errorf("row %v", r)
		}
		if r["Strategy"] == "quota" && number("Periods") <= 0 {
			t.Errorf("no quota was at work: %v", r)
		}
	}
	for cell, jobs := range map[string]int{
		"quota 1 0.5 0.5gi": 1, "quota 2 0.5 0.5gi": 2, "quota 1 0.9 0.5gi": 1, "quota 2 0.9 0.5gi": 2, "unbounded 1 0 0": 1, "unbounded-aa 1 0 0": 1,
	} {
		if cells[cell] != jobs {
			t.Errorf("%d rows of %s, want %d; all: %v", cells[cell], cell, jobs, cells)
		}
	}
}

// nothingLeft checks that the namespace of the experiment no longer exists.
func nothingLeft(t *testing.T, c *Cluster) {
	t.Helper()
	if out, err := c.Kubectl(t.Context(), "get", "namespace", "tenon-lab"); err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("the experiment leaves its namespace: %s %v", out, err)
	}
}

// interruptRun starts an experiment and interrupts it while one of its jobs
// runs.
func interruptRun(t *testing.T, c *Cluster, bin string, grid []string) {
	t.Helper()
	var said bytes.Buffer
	lab := c.Command(t.Context(), bin, grid...)
	lab.Stdout, lab.Stderr = &said, &said
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	requireSoon(t, time.Minute, "the experiment has a job", func() error {
		out, err := c.Kubectl(t.Context(), "get", "jobs", "-n", "tenon-lab", "-o", "name")
		if err == nil && out == "" {
			err = errors.New("none yet")
		}
		return err
	})
	pid, err := PID(lab)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGINT)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = lab.Wait() // its status says that it was interrupted
	t.Logf("%s", said.String())
	nothingLeft(t, c)
}

// theTranscoderChart installs the chart in a namespace that enforces the Pod
// Security standard "baseline", and imports the logs of the chart's jobs. The
// namespace must accept the chart's defaults and an Indexed Job without a
// warning.
func theTranscoderChart(t *testing.T, c *Cluster, n *Node, bin string) {
	t.Helper()
	logs := keepLogs(t, n, "chart-")
	h := &chart{t: t, c: c, n: n, helm: filepath.Join(Cache(), "helm")}
	h.build("../chart", "go", "build", "-o", h.helm, "helm.sh/helm/v4/cmd/helm")
	const dir = "../../deploy/chart/transcoder"
	h.kubectl("create", "namespace", "transcode")
	h.kubectl("label", "namespace", "transcode", "pod-security.kubernetes.io/enforce=baseline", "pod-security.kubernetes.io/warn=baseline")
	for _, values := range [][]string{nil, {"--set", "kind=indexed,multiSource=true,resources.requests.cpu=0.8"}} {
		manifest := h.run(append([]string{"template", "transcoder", dir, "-n", "transcode"}, values...)...)
		apply := c.Command(t.Context(), "kubectl", "apply", "--dry-run=server", "-f", "-")
		apply.Stdin = strings.NewReader(manifest)
		if out, err := apply.CombinedOutput(); err != nil || strings.Contains(string(out), "Warning") {
			t.Errorf("values %v: %s %v", values, out, err)
		}
	}
	for _, example := range []string{"values", "two-cpus/values"} { // with a folder of the node, which "baseline" forbids
		manifest := h.run("template", "transcoder", dir, "-n", "default", "-f", "../../examples/concurrency/"+example+".yaml")
		if out, err := c.KubectlApply(t.Context(), manifest, "apply", "--dry-run=server", "-f", "-"); err != nil || strings.Contains(out, "Warning") {
			t.Errorf("%s: %s %v", example, out, err)
		}
	}
	h.run("install", "transcoder", dir, "-n", "transcode", "--set", "type=chart,parallelism=2,burst=double,defaultSource=HD2-h264.ts,source.url=,source.path="+clipFolder,
		"--set", "resources.requests.cpu=0.2,resources.requests.memory=0.2Gi", "--set", "args={-y,-i,"+clipFolder+"/HD2-h264.ts,-frames:v,24,-s,640x360,-f,mp4,/dev/null}")
	h.kubectl("wait", "-n", "transcode", "--for=condition=complete", "--timeout=1m", "job", "-l", "role=transcoder")
	imported := filepath.Join(t.TempDir(), "imported")
	if said, err := c.Command(t.Context(), bin, "lab", "concurrency", "import", logs, "--out", imported).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	found := 0
	for _, r := range rowsOf(t, filepath.Join(imported, "jobs.csv")) {
		if r["Type"] == "chart" && r["Concurrency"] == "2" && r["CPU"] == "0.2" && r["Memory"] == "0.2gi" && r["Source"] == "HD2-h264.ts" {
			found++
		}
	}
	if found != 2 {
		t.Errorf("the import finds %d of the chart's 2 jobs", found)
	}
}
