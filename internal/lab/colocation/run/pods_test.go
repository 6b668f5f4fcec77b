package run

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/turns"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

func TestCountersOfPods(t *testing.T) {
	const stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 700 1 1 1 4 0 0\ncpu1 10 0 10 1200 34 0 1 6 0 0\nintr 5 4 3\nctxt 12\nbtime 1\nprocesses 7\nsoftirq 1 2 3\n"
	const ls = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n12 3000000 40\n5 1000000 2\n"
	for name, c := range map[string]struct {
		text             string
		usage, throttled time.Duration
	}{
		"v1": {stat + ls + "1500000000\nnr_periods 3\nnr_throttled 2\nthrottled_time 70000000\n", 1500 * time.Millisecond, 70 * time.Millisecond},
		"v2": {stat + ls + "usage_usec 1500000\nuser_usec 1\nsystem_usec 2\nnr_periods 3\nnr_throttled 2\nthrottled_usec 70000\n", 1500 * time.Millisecond, 70 * time.Millisecond},
	} {
		got, err := parseCounters(strings.Split(strings.TrimSpace(c.text), "\n"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.usage != c.usage || got.throttled != c.throttled {
			t.Errorf("%s: used %v, throttled %v; want %v, %v", name, got.usage, got.throttled, c.usage, c.throttled)
		}
		if got.idle[1] != 12340*time.Millisecond || got.steal[1] != 60*time.Millisecond || got.idle[0] != 7010*time.Millisecond {
			t.Errorf("%s: idle %v, steal %v", name, got.idle, got.steal)
		}
		if got.delay != 4*time.Millisecond || got.slices != 42 {
			t.Errorf("%s: run-queue delay %v in %d slices", name, got.delay, got.slices)
		}
		if !got.hasStalled || got.stalled != 2500*time.Millisecond {
			t.Errorf("%s: stalled %v", name, got.stalled)
		}
	}
	batch := "usage_usec 5\n" +
		"frame=10\nfps=1\nout_time_us=400000\nprogress=continue\nframe=25\nout_time_us=1000000\nprogress=continue\n,\n" +
		"frame=0\nout_time_us=N/A\nprogress=continue\n,\n"
	got, err := parseCounters(strings.Split(strings.TrimSpace(batch), "\n"))
	if err != nil || len(got.progress) != 2 || got.progress[0].Frames != 25 || got.progress[0].Media != time.Second || got.progress[1].Frames != 0 {
		t.Errorf("progress %v, %v", got.progress, err)
	}
	for _, bad := range []string{"", stat, "usage_usec x", "usage_usec 5\ncpuX 1 1 1 1 1 1 1 1", "usage_usec 5\nframe=many"} {
		if c, err := parseCounters(strings.Split(bad, "\n")); err == nil {
			t.Errorf("%q is accepted as %+v, want an error", bad, c)
		}
	}
}

func TestReadingsOfPodsAddUp(t *testing.T) {
	s := &podSampler{tested: unit.CPUSetOf(1)}
	at := time.Unix(1000, 0)
	for i := range 3 {
		n := time.Duration(i)
		s.add(at.Add(n*10*time.Second), counters{
			idle: map[unit.CPU]time.Duration{0: n * time.Hour, 1: n * 2 * time.Second}, usage: n * 3 * time.Second, delay: n * time.Millisecond, slices: 10 * int64(i),
		}, counters{usage: n * 5 * time.Second, progress: []work.Mark{{Frames: 100 * float64(i)}, {Frames: 50 * float64(i)}}})
	}
	used := harness.Between(harness.ReadingAt(s.Readings, at.Add(5*time.Second)), harness.ReadingAt(s.Readings, at.Add(15*time.Second)), s.Capacity())
	if used.Busy != 0.8 || used.LS != 0.3 || used.BE != 0.5 || used.Count[harness.Timeslices] != 10 {
		t.Errorf("%+v", used)
	}
	if all := s.progress(at.Add(5*time.Second), at.Add(15*time.Second)); len(all) != 2 || all[0].work != 100 || all[1].work != 50 {
		t.Errorf("encoded %v, want 100 and 50 frames", all)
	}
}

// TestShortRunsAreReadOften checks the time between two readings of the counters.
// In a run of 2 s, a reading each 2 s would mix the warm-up into the figures.
func TestShortRunsAreReadOften(t *testing.T) {
	for run, want := range map[time.Duration]time.Duration{
		time.Second: 200 * time.Millisecond, 2 * time.Second: 200 * time.Millisecond, 10 * time.Second: time.Second, 30 * time.Second: 2 * time.Second,
	} {
		if got := askPeriod(run); got != want {
			t.Errorf("a run of %v is read every %v, want %v", run, got, want)
		}
	}
}

// TestAnEndedFfmpegIsReported runs three commands as the batch pod does. The
// second prints one progress report and is then killed, as the kernel does for
// lack of memory. The report stays, so only the exit status shows the end.
func TestAnEndedFfmpegIsReported(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "progress-")
	const ffmpeg = `echo frame=7; echo progress=continue; case $(readlink /proc/$$/fd/1) in *2) kill -9 $$;; esac; while [ -e "$1" ]; do sleep 0.01; done`
	runs := filepath.Join(t.TempDir(), "runs")
	if err := os.WriteFile(runs, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	pod := exec.CommandContext(t.Context(), "sh", "-c", startScript(3, prefix), "sh", "sh", "-c", ffmpeg, "sh", runs)
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = os.Remove(runs)
		_ = pod.Wait()
	}()
	// batchScript asks for the cgroup of the container. Its form differs between
	// machines, so the test gives the usage itself.
	k := kubectl.Client{Path: fakeKubectl(t, `shift 4; exec "$@"`)}
	shell, err := k.Open(batchPod, strings.Replace(strings.ReplaceAll(batchScript, progressFiles, prefix), "cat "+groupFiles, "echo usage_usec 5", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	s := &podSampler{tested: unit.CPUSetOf(1), batch: []*kubectl.Shell{shell}}
	// all says that the progress of each process is read. The second may end before
	// the third has begun.
	all := func() bool {
		return len(s.marks) == 3 && !slices.ContainsFunc(s.marks, func(m *work.Marks) bool { return !m.Started() })
	}
	for deadline := time.Now().Add(20 * time.Second); s.exitError() == nil || !all(); time.Sleep(10 * time.Millisecond) {
		c, err := countersOf(shell)
		if err != nil {
			t.Fatal(err)
		}
		s.add(time.Now(), counters{}, c)
		if time.Now().After(deadline) {
			t.Fatalf("the end of a process, or the progress of one of them, is not reported: %+v", c)
		}
	}
	if err := s.exitError(); !strings.HasPrefix(err.Error(), "1 of 3 ffmpegs ended with exit status 137") {
		t.Error(err)
	}
}

// TestTheProgressOfSwitchedPodsIsFollowed gives the sampler the ends of progress files.
func TestTheProgressOfSwitchedPodsIsFollowed(t *testing.T) {
	s := &podSampler{}
	at := time.Unix(1000, 0)
	for i, ends := range [][]string{
		{"frame=0\nout_time_us=N/A\nprogress=continue\n", ""},
		{"frame=0\nprogress=continue\nframe=10\nout_time_us=400000\nprogress=continue\n", "frame=20\nprogress=continue\n"},
		{"frame=30\nprogress=continue\n", "frame=20\nprogress=continue\n\nended=137\n"},
	} {
		var files []turns.Progress
		for _, end := range ends {
			files = append(files, turns.Progress{Written: at.Add(time.Duration(i) * time.Second), End: end})
		}
		if err := s.follow(files); err != nil {
			t.Fatal(err)
		}
		if (s.exitError() != nil) != (i == 2) {
			t.Errorf("after %d readings: %v", i+1, s.exitError())
		}
	}
	if got := s.progress(at.Add(time.Second), at.Add(2*time.Second)); len(got) != 2 || got[0].work != 20 || got[1].work != 0 {
		t.Errorf("progress %v, want 20 and 0 frames", got)
	}
	if err := s.follow([]turns.Progress{{End: "frame=many\n"}}); err == nil {
		t.Error("a progress that is no number is accepted")
	}
}

// fakeTenond is a kubectl of a node: the first %s is the list of the pods of tenond, and
// the second what kubectl exec does.
const fakeTenond = `case "$*" in
"get -o json pods --all-namespaces -l app.kubernetes.io/name=tenond --field-selector spec.nodeName=a,status.phase=Running") %s ;;
"exec -i -n tenon-system tenond-x -c tenond -- /tenon lab child turns") %s ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac`

// TestANodeThatCannotSwitchIsOneClearError has nodes on which the lab cannot change modes.
func TestANodeThatCannotSwitchIsOneClearError(t *testing.T) {
	const (
		one    = `echo '{"items":[{"metadata":{"name":"tenond-x","namespace":"tenon-system"}}]}'`
		answer = `while read -r l; do echo '{"at":"2026-01-02T03:04:05Z"}'; echo .; done`
		refuse = `read -r l; echo '{"at":"2026-01-02T03:04:05Z","error":"the pod of tenond may not write the cgroups of its node: read-only file system"}'; echo .`
	)
	for name, c := range map[string]struct{ list, exec, want string }{
		"a node with tenond": {one, answer, ""},
		"no tenond":          {`echo '{"items":[]}'`, answer, "the node has no running pod of tenond"},
		"no right to list":   {`echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1`, answer, "pods is forbidden"},
		"no right to exec":   {one, `echo 'Error from server (Forbidden): pods "tenond-x" is forbidden' >&2; exit 1`, "is forbidden"},
		"an old tenond":      {one, `echo 'tenon: lab child ["turns"]: want client' >&2; exit 1`, "want client"},
		"no right to write":  {one, refuse, "read-only file system"},
		"slow":               {one, `while read -r l; do sleep 0.5; echo '{"at":"2026-01-02T03:04:05Z"}'; echo .; done`, "run the lab nearer to the node"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := podsOf(t, kubectl.Client{Path: fakeKubectl(t, fmt.Sprintf(fakeTenond, c.list, c.exec))})
			err := b.findSwitcher(t.Context())
			switch {
			case c.want == "" && (err != nil || b.unsure < time.Millisecond || b.unsure > longestTrip/2+time.Millisecond):
				t.Errorf("unsure by %v, error %v", b.unsure, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "switch modes on node a by the pod of its tenond: ") || !strings.HasSuffix(err.Error(), "use --design blocks, which does without")):
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestANodeIsWatchedByTheProcessOfItsTenond gives the lab the answer of a busy node. The
// use of the machine of the lab must not take its place.
func TestANodeIsWatchedByTheProcessOfItsTenond(t *testing.T) {
	const (
		one    = `echo '{"items":[{"metadata":{"name":"tenond-x","namespace":"tenon-system"}}]}'`
		others = `"others":{"watched_ns":2000000000,"cpus":77,"other_cpus_used":1.5,"other_tested_cpus_used":0.25,"programs":[{"name":"make","cpus_used":1.5}],"steal_ratio":null,"psi_cpu_some_ratio":0.5}`
	)
	for name, c := range map[string]struct {
		said string
		cpus int // 0: an error
	}{"a node": {"," + others, 77}, "an answer without it": {"", 0}} {
		exec := fmt.Sprintf(`while read -r l; do case "$l" in *watch_ns*) echo '{"at":"2026-01-02T03:04:05Z"%s}' ;; *) echo '{"at":"2026-01-02T03:04:05Z"}' ;; esac; echo .; done`, c.said)
		b := podsOf(t, kubectl.Client{Path: fakeKubectl(t, fmt.Sprintf(fakeTenond, one, exec))})
		if err := b.findSwitcher(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, err := site(b).Others(t.Context(), othersLength)
		if (err != nil) != (c.cpus == 0) || o.CPUs != c.cpus {
			t.Errorf("%s: %+v, error %v", name, o, err)
		}
		if c.cpus > 0 && (o.Used != 1.5 || o.Steal.Known() || len(o.Programs) != 1) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestStrategiesAreTenons adds the lab's entries to a ConfigMap. Tenon's own
// parser must accept the ConfigMap.
func TestStrategiesAreTenons(t *testing.T) {
	theirs := map[string]string{
		"colocation-config":         `{"enable": true, "nodeConfigs": [{"name": "big", "nodeSelector": {"matchLabels": {"a": "b"}}, "cpuReclaimThresholdPercent": 70}]}`,
		"resource-threshold-config": `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 80}}`,
	}
	for _, mode := range KnownPodModes {
		if !mode.Spec().Cluster {
			continue // such modes are only switched, with the strategies of default
		}
		s := strategyOf(mode.Spec(), nil)
		data := maps.Clone(theirs)
		for key, entry := range s {
			text, err := withEntry(key, data[key], entry)
			if err != nil {
				t.Fatal(err)
			}
			data[key] = text
		}
		cluster, faults := config.ParseConfigMap(data)
		if len(faults) > 0 {
			t.Errorf("%s: %v", mode, faults)
			continue
		}
		here, _ := cluster.Node(map[string]string{strategyLabel: strategyName, "a": "b"}, nil)
		traits := mode.Spec()
		if on := here.Strategies.Threshold.Enable.Or(false); on != traits.Suppress {
			t.Errorf("%s: suppress is %v", mode, on)
		}
		if percent := here.Strategies.Threshold.CPUSuppressThresholdPercent.Or(0); traits.Suppress && percent != Watermark {
			t.Errorf("%s: suppress at %v", mode, percent)
		}
		elsewhere, _ := cluster.Node(map[string]string{"a": "b"}, nil)
		plain, _ := config.ParseConfigMap(theirs)
		if as, _ := plain.Node(map[string]string{"a": "b"}, nil); !reflect.DeepEqual(elsewhere.Strategies, as.Strategies) {
			t.Errorf("%s: other nodes have %+v, not %+v", mode, elsewhere.Strategies, as.Strategies)
		}

		// Remove the entries again.
		for key := range s {
			text, err := withEntry(key, data[key], nil)
			if err != nil {
				t.Fatal(err)
			}
			if text == "" {
				delete(data, key)
			} else {
				data[key] = text
			}
		}
		if !slices.Equal(slices.Sorted(maps.Keys(data)), slices.Sorted(maps.Keys(theirs))) {
			t.Errorf("%s: left %v", mode, data)
		}
		for key, text := range data {
			if !sameJSON(t, text, theirs[key]) {
				t.Errorf("%s: %s is %s, was %s", mode, key, text, theirs[key])
			}
		}
	}
	if _, err := withEntry("colocation-config", "{enable", nil); err == nil || !strings.Contains(err.Error(), "colocation-config") {
		t.Errorf("a ConfigMap that is not JSON: error %v", err)
	}
	untouched := "{ \"enable\":  true }"
	if text, err := withEntry("colocation-config", untouched, nil); err != nil || text != untouched {
		t.Errorf("%q without the lab's entries became %q, error %v", untouched, text, err)
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	xs, _ := json.Marshal(x)
	ys, _ := json.Marshal(y)
	return string(xs) == string(ys)
}

func TestWrongOrdersForACluster(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		pods   Pods
		says   string
	}{
		"CPUs":      {Config{Setting: testbed.Setting{CPUs: unit.CPUSetOf(1)}}, Pods{}, "--cpus 1"},
		"ConfigMap": {Config{}, Pods{ConfigMap: "slo"}, `--config-map "slo": want NAMESPACE/NAME`},
		"load":      {Config{LoadPercent: 200}, Pods{}, "--load 200"},
		"namespace": {Config{}, Pods{Target: kubectl.Target{Namespace: "A_b"}}, `--namespace "A_b": want 1 to 63`},
	} {
		c.config.Pods = &c.pods
		if _, err := Run(t.Context(), c.config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q in it", name, err, c.says)
		}
	}
}

// TestShellsAnswer uses a fake kubectl, which runs the script on this machine.
func TestShellsAnswer(t *testing.T) {
	k := kubectl.Client{Path: fakeKubectl(t, `shift 4; exec "$@"`)}
	s, err := k.Open("nginx", `echo here; echo .; while read -r _; do cat /proc/stat /proc/self/schedstat; echo usage_usec 7; echo .; done`)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if lines, err := s.Answer(); err != nil || len(lines) != 1 || lines[0] != "here" {
		t.Fatalf("greeting %q, %v", lines, err)
	}
	for range 2 {
		c, err := countersOf(s)
		if err != nil || c.usage != 7*time.Microsecond || len(c.idle) == 0 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	gone, err := k.Open("nginx", "echo it is full >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	if _, err := countersOf(gone); err == nil || !strings.Contains(err.Error(), "the shell in pod nginx") {
		t.Errorf("a shell that has ended gives error %v", err)
	}
}

// podsOf returns the experiment on node a of a fake cluster.
func podsOf(t *testing.T, k kubectl.Client) *pods {
	c := Config{Pods: &Pods{}}.onCluster(t.Errorf)
	space := &kubectl.Space{Client: k, Target: c.Pods.Target, Experiment: "colocation", Objects: "pods,configmaps"}
	return &pods{bench: bench{Config: c, Site: &testbed.Site{Status: &testbed.Status{W: io.Discard}}}, space: space, node: nodes.Node{Name: "a"}}
}

func fakeKubectl(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl")
	// Without this lock, another test could fork now. Its process would have
	// the file open for writing, and the kernel would refuse to execute the
	// file (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAmountsOfTheMetricsAPI(t *testing.T) {
	for text, want := range map[string]float64{"2": 2, "1250m": 1.25, "500000u": 0.5, "83000000n": 0.083, "": 0, "x": 0} {
		if got := cpusOf(text); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%q is parsed as %v CPUs, want %v", text, got, want)
		}
	}
}

// TestNodeMetricsAreOfTheRun checks that nodeMetrics uses only a window that
// lies within the run. It must wait for a window only if the run is long enough
// to contain one.
func TestNodeMetricsAreOfTheRun(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	metrics := func(end time.Duration) string {
		return fmt.Sprintf(`{"timestamp": %q, "window": "10s", "usage": {"cpu": "1250m"}}`, at.Add(end).Format(time.RFC3339))
	}
	for name, c := range map[string]struct {
		length  time.Duration
		answers []string // the last one repeats
		want    float64
		asked   int
	}{
		"lies in it":               {30 * time.Second, []string{metrics(25 * time.Second)}, 1.25, 1},
		"comes":                    {30 * time.Second, []string{metrics(5 * time.Second), metrics(15 * time.Second)}, 1.25, 2},
		"comes after the run only": {30 * time.Second, []string{metrics(5 * time.Second), metrics(31 * time.Second)}, 0, 2},
		"happens to fit":           {10 * time.Second, []string{metrics(10 * time.Second)}, 1.25, 1},
		"need not fit":             {19 * time.Second, []string{metrics(5 * time.Second)}, 0, 1},
		"there is none":            {30 * time.Second, []string{""}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for i, a := range c.answers {
				if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i+1)), []byte(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			path := fakeKubectl(t, fmt.Sprintf("cd %s; echo >> asked; n=$(wc -l < asked); [ $n -gt %d ] && n=%[2]d; [ -s $n ] && cat $n", dir, len(c.answers)))
			b := podsOf(t, kubectl.Client{Path: path})
			if got := b.nodeMetrics(t.Context(), at, at.Add(c.length), time.Hour); got != c.want {
				t.Errorf("nodeMetrics returns %v CPUs, want %v", got, c.want)
			}
			if asked, err := os.ReadFile(filepath.Join(dir, "asked")); err != nil || len(asked) != c.asked {
				t.Errorf("asked %d times (%v), want %d", len(asked), err, c.asked)
			}
		})
	}
}

func TestNginxRequestsNoWholeCPU(t *testing.T) {
	for n := 1; n <= 208; n++ {
		m := requestOf(n)
		if m%1000 == 0 || m <= 0 || m >= unit.CPUs(n) {
			t.Errorf("on %d CPUs nginx requests %v", n, m)
		}
	}
}

// TestTheThirdModeIsThePublishedConfigMap compares three things with what tenond makes of
// the example: the policies of the lab's own loop, the configuration of a tenond that
// the lab starts, and a node of a cluster whose own ConfigMap has other settings.
func TestTheThirdModeIsThePublishedConfigMap(t *testing.T) {
	_, example := thirdMode()
	want := example.Policy
	theirs := map[string]string{
		"colocation-config":         `{"enable": true, "cpuReclaimThresholdPercent": 90, "memoryReclaimThresholdPercent": 20}`,
		"resource-threshold-config": `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 80, "cpuSuppressPolicy": "cfsQuota"}}`,
	}
	pods := testbed.Pods{Tested: unit.CPUSetOf(0, 1)}
	for _, mode := range []report.Mode{report.SLOAware, report.SLOAwareQuota} {
		traits := mode.Spec()
		want.Suppress.Policy = suppress.ByCPUSet
		if traits.Quota {
			want.Suppress.Policy = suppress.ByQuota
		}
		here := allFeatures(pods, traits)
		if here.Suppress != want.Suppress || !reflect.DeepEqual(here.Cache, want.Cache) || !here.CPUQOS.Enable {
			t.Errorf("%s: the lab's loop has %+v", mode, here)
		}
		text, err := colocationTenond(pods, traits).Text()
		if err != nil {
			t.Fatal(err)
		}
		c, faults := config.Parse(text)
		if len(faults) > 0 || c.Policy.Suppress != want.Suppress || !reflect.DeepEqual(c.Policy.Cache, want.Cache) || !c.Policy.CPUQOS.Enable {
			t.Errorf("%s: tenond has %+v, faults %v:\n%s", mode, c.Policy, faults, text)
		}
		data := maps.Clone(theirs)
		for key, entry := range strategyOf(traits, defaultAmounts()) {
			if data[key], err = withEntry(key, data[key], entry); err != nil {
				t.Fatal(err)
			}
		}
		cluster, faults := config.ParseConfigMap(data)
		node, more := cluster.Node(map[string]string{strategyLabel: strategyName}, nil)
		var texts [2]string
		for i, p := range []policy.Config{want, node.Policy} {
			text, err := json.MarshalIndent(p, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(text)
		}
		if diff := cmp.Diff(texts[0], texts[1]); diff != "" || len(faults)+len(more) > 0 {
			t.Errorf("%s: a node has other policies: %s, faults %v %v", mode, diff, faults, more)
		}
	}
	if got := batchLimit(report.SLOAware.Spec(), 104); got != unit.CPUs(70) {
		t.Errorf("batch resources of %d on 104 CPUs, want those of the published pod", got)
	}
}

// TestTheKubeletsCounterGivesTheUseOfTheNode computes the use between readings that lie in
// a run. Those before and after it do not count.
func TestTheKubeletsCounterGivesTheUseOfTheNode(t *testing.T) {
	r, ok := nodeReadingOf([]byte("# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total 1.5e+02 1700000010000\nnode_memory_working_set_bytes 1 1\n"))
	if want := (nodeReading{time.UnixMilli(1700000010000), 150}); !ok || r != want {
		t.Errorf("%+v, %v; want %+v", r, ok, want)
	}
	if _, ok := nodeReadingOf([]byte("scrape_error 1\n")); ok {
		t.Error("a text without the counter has a reading")
	}
	n := nodeCounter{}
	from := time.UnixMilli(1700000000000)
	for i, seconds := range []float64{90, 100, 112, 124, 200} { // at -1 s, 9 s, 19 s …
		n.readings = append(n.readings, nodeReading{from.Add(time.Duration(10*i-1) * time.Second), seconds})
	}
	for length, want := range map[time.Duration]float64{30 * time.Second: 1.2, 20 * time.Second: 1.2, 15 * time.Second: 0, 35 * time.Second: 1.2, 60 * time.Second: 100.0 / 30} {
		if got := n.between(from, from.Add(length)); math.Abs(got-want) > 1e-9 {
			t.Errorf("in %v: %v CPUs, want %v", length, got, want)
		}
	}
}
