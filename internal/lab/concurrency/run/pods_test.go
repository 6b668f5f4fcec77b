package run

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobfiles"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

// podsOn returns the experiment on nodes that have four CPUs, of which 3.5 are free.
func podsOn(t *testing.T, policy string, names ...string) *pods {
	t.Helper()
	c, err := Config{Setting: testbed.Setting{Out: t.TempDir()}, Pods: &Pods{}}.OrDefaults()
	if err != nil {
		t.Fatal(err)
	}
	site := &testbed.Site{Given: c.Setting, Status: &testbed.Status{W: io.Discard}}
	b := &pods{bench: bench{Config: c, Site: site, whole: 100}, height: 360, space: &kubectl.Space{Experiment: labWord, Objects: "jobs"}}
	for _, n := range names {
		b.nodes = append(b.nodes, nodes.Node{Name: n, CPUs: 4, Policy: policy, Free: nodes.Amounts{CPU: 3500, Memory: 8 * gib, BatchCPU: 2000, BatchMemory: 4 * gib, Pods: 100}})
	}
	return b
}

// TestEachStrategyRequestsItsLimits compares the limits and requests of CPU and
// memory.
func TestEachStrategyRequestsItsLimits(t *testing.T) {
	for _, c := range []struct {
		policy           string
		cell             Cell
		limits, requests string
	}{
		{"none", Cell{Strategy: Quota, Jobs: 2, Limit: 1000, Memory: gib}, "cpu=1000m memory=1073741824", "cpu=1000m memory=1073741824"},
		// With equal whole amounts, this kubelet would pin the job.
		{"static", Cell{Strategy: Quota, Jobs: 2, Limit: 1000, Memory: gib}, "cpu=1000m memory=1073741824", "cpu=999m memory=1073741824"},
		{"static", Cell{Strategy: Quota, Jobs: 2, Limit: 500}, "cpu=500m", "cpu=500m"},
		{"static", Cell{Strategy: Static, Jobs: 2, Limit: 1000, Memory: gib}, "cpu=1000m memory=1073741824", "cpu=1000m memory=1073741824"},
		{"none", Cell{Strategy: Burst, Jobs: 2, Limit: 500}, "cpu=8000m", "cpu=500m"},
		{"none", Cell{Strategy: Matched, Jobs: 2, Limit: 1500, Threads: 2}, "cpu=1500m", "cpu=1500m"},
		{"none", Cell{Strategy: Unbounded, Jobs: 2}, "", "cpu=1662m"},
		{"none", Cell{Strategy: Control, Jobs: 1}, "", "cpu=3325m"},
		{"none", Cell{Strategy: Tenon, Jobs: 2, Limit: 500}, "batch-cpu=500 batch-memory=268435456", "batch-cpu=500 batch-memory=268435456"},
	} {
		b := podsOn(t, c.policy, "a")
		limits, requests := b.resources(c.cell)
		for which, got := range map[string]kubectl.Object{"limits": limits, "requests": requests} {
			want := map[string]string{"limits": c.limits, "requests": c.requests}[which]
			var words []string
			for _, name := range []string{"cpu", "memory", nodes.BatchCPU, nodes.BatchMemory} {
				if v, ok := got[name]; ok {
					words = append(words, strings.TrimPrefix(name, "kubernetes.io/")+"="+v.(string))
				}
			}
			if text := strings.Join(words, " "); text != want {
				t.Errorf("%v, kubelet %s: %s %q, want %q", c.cell, c.policy, which, text, want)
			}
		}
	}
}

func TestCellsThatExceedTheNodesAreRefusedByName(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		cell   Cell
		on     []string
		says   string // empty: they run
	}{
		"fits":                   {"none", Cell{Strategy: Quota, Jobs: 3, Limit: 1000}, []string{"a"}, ""},
		"one too many":           {"none", Cell{Strategy: Quota, Jobs: 4, Limit: 1000}, []string{"a"}, "there is room for 3 of its jobs at once: node a has 3.5 of 4 CPUs and 8.0 GiB free"},
		"on two nodes":           {"none", Cell{Strategy: Quota, Jobs: 6, Limit: 1000}, []string{"a", "b"}, ""},
		"no node is that large":  {"none", Cell{Strategy: Quota, Jobs: 1, Limit: 4000}, []string{"a", "b"}, "there is room for 0"},
		"memory":                 {"none", Cell{Strategy: Quota, Jobs: 3, Limit: 100, Memory: 4 * gib}, []string{"a"}, "there is room for 2"},
		"burst without an end":   {"none", Cell{Strategy: Burst, Jobs: 1, Limit: 500}, []string{"a"}, "its quota of 8 CPUs is no limit on 4"},
		"not static":             {"none", Cell{Strategy: Static, Jobs: 1, Limit: 1000, Memory: gib}, []string{"a"}, `node a has CPU manager policy "none"`},
		"static":                 {"static", Cell{Strategy: Static, Jobs: 3, Limit: 1000, Memory: gib}, []string{"a"}, ""},
		"static fraction":        {"static", Cell{Strategy: Static, Jobs: 1, Limit: 1500, Memory: gib}, []string{"a"}, "whole numbers"},
		"static without memory":  {"static", Cell{Strategy: Static, Jobs: 1, Limit: 1000}, []string{"a"}, "--memory"},
		"batch resources":        {"none", Cell{Strategy: Tenon, Jobs: 4, Limit: 500}, []string{"a"}, ""},
		"more than is offered":   {"none", Cell{Strategy: Tenon, Jobs: 3, Limit: 1000}, []string{"a"}, "there is room for 2 of its jobs at once: node a has 2 of 4 CPUs as batch resources"},
		"without a limit":        {"none", Cell{Strategy: Unbounded, Jobs: 16}, []string{"a"}, ""},
		"memory without a limit": {"none", Cell{Strategy: Unbounded, Jobs: 16, Memory: gib}, []string{"a"}, "there is room for 8"},
	} {
		b := podsOn(t, c.policy, c.on...)
		why := b.refuse(c.cell)
		if (why == "") != (c.says == "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: %q, want %q", name, why, c.says)
		}
	}
	b := podsOn(t, "none", "a")
	b.nodes[0].Free.BatchCPU = 0
	if why := b.refuse(Cell{Strategy: Tenon, Jobs: 1, Limit: 500}); !strings.Contains(why, "node a offers no kubernetes.io/batch-cpu") {
		t.Errorf("without Tenon: %q", why)
	}
}

func TestStrategiesOfTheMachineAreRefusedOnce(t *testing.T) {
	c, err := Config{Preset: Full, Pods: &Pods{}}.OrDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cells, refused := c.cells(func(Cell) string { return "" })
	if len(refused) != 3 || !strings.HasPrefix(refused[0], "pinned: ") || !strings.HasPrefix(refused[1], "pinned-blind: ") || !strings.HasPrefix(refused[2], "static-burst: this lab") {
		t.Errorf("refused: %q", refused)
	}
	for _, cell := range cells {
		if cell.Strategy == PinnedSlices || cell.Strategy == PinnedBlind || cell.Strategy == StaticBurst {
			t.Errorf("cell %v is left", cell)
		}
	}
}

func TestWrongFlagsOfTheClusterAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		c    Config
		says string
	}{
		"another fill": {Config{Fill: Steady}, "--fill steady"},
		"slices":       {Config{Slice: 2}, "--slice 2"},
		"CPUs":         {Config{Setting: testbed.Setting{CPUs: unit.CPUSetOf(1)}}, "--cpus 1"},
		"a film here":  {Config{Input: "film.mp4"}, "--input"},
		"a namespace":  {Config{Pods: &Pods{Target: kubectl.Target{Namespace: "A_b"}}}, "--namespace"},
		"a command":    {Config{Input: "/film.mp4", Argv: []string{"true"}}, "--input and --height belong"},
		"of the run":   {Config{Jobs: []int{0}}, "--jobs 0"},
	} {
		if c.c.Pods == nil {
			c.c.Pods = &Pods{}
		}
		if _, err := c.c.OrDefaults(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestJobsWaitForTheirCommonBegin runs the script of the containers on this
// machine.
func TestJobsWaitForTheirCommonBegin(t *testing.T) {
	b := podsOn(t, "none", "a")
	file := filepath.Join(t.TempDir(), "start")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(b.script(), startFile, file), "sh", "sh", "-c", "printf $TENON_JOB >&2; exit 3")
	cmd.Env = append(os.Environ(), "TENON_JOB=5", "TENON_MARK=strategy=quota block=1 run=2 threads=0 source=a")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("1"), 0o644); err != nil { // a second of 1970
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("the job ended with %v, want its own status 3", err)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "tenon-lab start due=1 strategy=quota ") || lines[1] != "5" || !strings.HasPrefix(lines[2], "tenon-lab end status=3 ") {
		t.Errorf("the log is %q", lines)
	}
}

// fakeCluster replaces kubectl. The map answers has the first words of a command
// as key, and the text of the answer as value. calls lists the commands.
func fakeCluster(t *testing.T, b *pods, answers map[string]string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range answers {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := `#!/bin/sh
cd ` + dir + `
echo "$*" >> calls
case "$*" in
*--watch*) n=$(ls watched-* 2>/dev/null | wc -l); : > watched-$n; [ -e watch-$n ] && cat watch-$n; exec sleep 100 ;;
*"-o json pods"*) cat pods ;;
*"-o json namespace"*) cat namespace ;;
"get pods"*) echo quota-2-0.5-0-0-aaaaa ;;
logs*) cat log-$2 ;;
exec*) date +%s ;;
apply*) cat > applied ;;
esac
`
	path := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// The file may be busy while another test forks. A shell can read it even
	// then.
	b.space.Client = kubectl.Client{Path: "/bin/sh", Args: []string{path}}
	return func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return string(text)
	}
}

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func podJSON(name, id, container, reason string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"nodeName":"a"},"status":{"containerStatuses":[{"name":"` + container + `","containerID":"containerd://` + id +
		`","state":{"terminated":{"exitCode":0,"reason":"` + reason + `","startedAt":"2026-03-17T10:24:30Z","finishedAt":"2026-03-17T10:24:47Z"}}}]}}`
}

const podLog = `2026-03-17T10:24:35.04Z tenon-lab start due=1773743075 strategy=quota block=1 run=7 threads=0 source=tenon.mp4 cpu usage_usec 100000 nr_periods 10 nr_throttled 2 throttled_usec 5000 memory 1000
2026-03-17T10:24:35.9Z Input #0, mov,mp4, from '/film/tenon.mp4':
2026-03-17T10:24:45.5Z frame=  100 fps= 25 speed=2.25x
2026-03-17T10:24:46.04Z tenon-lab end status=0 cpu usage_usec 5100000 nr_periods 120 nr_throttled 102 throttled_usec 6005000 memory 3000000
`

// TestAWaveBecomesRowsThatAnImportReadsBack runs a cell on a fake cluster. An
// import of the saved logs must give the same rows.
func TestAWaveBecomesRowsThatAnImportReadsBack(t *testing.T) {
	b := podsOn(t, "none", "a")
	one, two := "quota-2-0.5-0-0-aaaaa", "quota-2-0.5-0-1-bbbbb"
	calls := fakeCluster(t, b, map[string]string{
		"watch-0":    one + "|Pending|| \n" + one + "|Running|2026-03-17T10:24:30Z| \n" + two + "|Running|2026-03-17T10:24:30Z| \n",
		"watch-1":    one + "|Succeeded|| \n" + two + "|Failed|| \n",
		"pods":       `{"items":[` + podJSON(two, idB, "transcoder-1", "OOMKilled") + "," + podJSON(one, idA, "transcoder-0", "Completed") + "]}",
		"log-" + one: podLog,
		"log-" + two: podLog[:strings.LastIndex(podLog, "2026")],
	})
	r, err := b.measure(t.Context(), Cell{Strategy: Quota, Jobs: 2, Limit: 500}, 7, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || len(r.Void) != 1 || r.Void[0] != "job 1: its log has no end: it was killed (OOMKilled)" {
		t.Fatalf("%d rows, void %q", len(r.Rows), r.Void)
	}
	j := r.Rows[0]
	if j.Host != "a" || j.Type != "quota" || j.Concurrency != 2 || j.CPU != 500 || j.Extra.Run != 7 || j.Extra.CPUSeconds.Or(0) != 5 || j.Extra.Work.Or(0) != 100 || j.Extra.Void != "1.0 jobs that are void ran beside it" {
		t.Errorf("%+v", j)
	}
	in, err := jobfiles.ReadPaths([]string{filepath.Join(b.Out, "logs", "a")})
	if err != nil || len(in.Jobs) != 2 {
		t.Fatalf("%+v: %v", in, err)
	}
	r.Rows[1].Extra.Void = strings.TrimSuffix(r.Rows[1].Extra.Void, " (OOMKilled)") // what the cluster adds
	if got, want := table(t, in.Jobs), table(t, r.Rows); got != want {
		t.Errorf("the import gives\n%s\nwant\n%s", got, want)
	}
	for _, call := range []string{"apply -f -", "annotate pods -l tenon.sh/lab=concurrency,tenon.sh/lab-run=7 --overwrite tenon.sh/lab-start=", "delete jobs -l tenon.sh/lab=concurrency,tenon.sh/lab-run=7 --cascade=background --wait"} {
		if !strings.Contains(calls(), call) {
			t.Errorf("no call %q in\n%s", call, calls())
		}
	}
}

func table(t *testing.T, all []jobs.Job) string {
	t.Helper()
	var b strings.Builder
	if err := jobs.WriteTable(&b, all); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAWaveWithLateJobsMakesTheNextOneWaitASecondLonger checks that several
// late jobs add one second to the wait, and not a second each.
func TestAWaveWithLateJobsMakesTheNextOneWaitASecondLonger(t *testing.T) {
	b := podsOn(t, "none", "a")
	one, two := "quota-2-0.5-0-0-aaaaa", "quota-2-0.5-0-1-bbbbb"
	log := strings.ReplaceAll(podLog, "due=1773743075", "due=1773743074")
	fakeCluster(t, b, map[string]string{
		"watch-0":    one + "|Running|2026-03-17T10:24:30Z| \n" + two + "|Running|2026-03-17T10:24:30Z| \n",
		"watch-1":    one + "|Succeeded|| \n" + two + "|Succeeded|| \n",
		"pods":       `{"items":[` + podJSON(two, idB, "transcoder-1", "Completed") + "," + podJSON(one, idA, "transcoder-0", "Completed") + "]}",
		"log-" + one: log,
		"log-" + two: log,
	})
	b.lead = 3 * time.Second
	r, err := b.measure(t.Context(), Cell{Strategy: Quota, Jobs: 2, Limit: 500}, 7, 1)
	if err != nil || len(r.Void) != 2 || b.lead != 4*time.Second {
		t.Errorf("void %q, lead %v (%v): want two late jobs and 4s", r.Void, b.lead, err)
	}
}

// TestPodsOfAKilledLabAreGoneBeforeNodesAreCounted checks that a new lab first
// removes the pods of a killed lab, and then reads what is free on the nodes.
// In the other order, too little would be free.
func TestPodsOfAKilledLabAreGoneBeforeNodesAreCounted(t *testing.T) {
	b := podsOn(t, "none", "a")
	calls := fakeCluster(t, b, map[string]string{"namespace": `{"metadata":{"labels":{"tenon.sh/lab":"concurrency"}}}`})
	if err := b.space.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "delete jobs -l tenon.sh/lab=concurrency --cascade=foreground --wait"; !strings.Contains(calls(), want) {
		t.Errorf("no call %q in\n%s", want, calls())
	}
}

// TestAPodThatEndsBeforeItsBeginEndsTheExperiment checks the error. Its message
// must contain the output of the pod.
func TestAPodThatEndsBeforeItsBeginEndsTheExperiment(t *testing.T) {
	b := podsOn(t, "none", "a")
	one := "quota-1-0.5-0-0-aaaaa"
	calls := fakeCluster(t, b, map[string]string{"watch-0": one + "|Failed|| \n", "log---tail=5": "sh: not found\n"})
	_, err := b.measure(t.Context(), Cell{Strategy: Quota, Jobs: 1, Limit: 500}, 7, 1)
	if err == nil || !strings.Contains(err.Error(), one+" ended before its begin (Failed): sh: not found") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(calls(), "delete jobs -l tenon.sh/lab=concurrency,tenon.sh/lab-run=7") {
		t.Errorf("the jobs are left:\n%s", calls())
	}
}

// TestJobsAsPublishedHaveThePublishedArguments also checks the names of the
// jobs, and that they wait for nothing.
func TestJobsAsPublishedHaveThePublishedArguments(t *testing.T) {
	b := podsOn(t, "none", "a")
	b.AsPublished, b.Input, b.Type, b.height = true, "/data/sintel_trailer-1080p.mp4", "aws", 1080
	cell := Cell{Strategy: Quota, Jobs: 2, Limit: 800, Memory: 8 * gib}
	all := b.manifests(cell, 1, 1)
	if name := all[1]["metadata"].(kubectl.Object)["name"]; len(all) != 2 || name != "aws-2-0.8-8gi-1" {
		t.Errorf("%d jobs, the last is %v", len(all), name)
	}
	if strings.Contains(b.script(), startFile) {
		t.Error("the jobs wait for a common begin")
	}
	want := "ffmpeg -y -i /data/sintel_trailer-1080p.mp4 -stats -c:v libx264 -s 1920x1080 -crf 22 -profile:v main -pix_fmt yuv420p -threads 0 -f mp4 -ac 2 -c:a aac -b:a 128k -strict -2 /tmp/output.mp4"
	if got := strings.Join(b.argv(0), " "); got != want {
		t.Errorf("arguments\n%s\nwant\n%s", got, want)
	}
}
