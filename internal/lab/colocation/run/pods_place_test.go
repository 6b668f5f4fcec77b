package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// placingOf returns the experiment on node a of a fake cluster, whose scheduler places
// batch pods. The lines of script answer kubectl.
func placingOf(t *testing.T, batch int, each unit.MilliCPU, script string) *pods {
	t.Helper()
	b := podsOf(t, kubectl.Client{Path: fakeKubectl(t, script)})
	b.Pods.Batch, b.Pods.BatchCPU = batch, each
	b.Place.Tested = unit.CPUSetOf(1)
	b.processes, b.threads = 1, 2
	return b
}

// requestsOf returns what a manifest asks for, by the key of its resources.
func requestsOf(t *testing.T, o object) map[string]map[string]string {
	t.Helper()
	var pod struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
		Spec struct {
			NodeName   string
			Affinity   object
			Containers []struct {
				Resources map[string]map[string]string
			}
		}
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &pod)
	}
	if err != nil || len(pod.Spec.Containers) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Metadata.Labels["app"] != batchPod {
		t.Errorf("the scheduler does not place the pod, or the lab does not find it: %s", text)
	}
	return pod.Spec.Containers[0].Resources
}

// TestBatchPodsAskByTheirMode checks that the pods of the modes differ in their requests
// only, and that the scheduler places them.
func TestBatchPodsAskByTheirMode(t *testing.T) {
	amount := map[string]string{nodes.BatchCPU: "125"}
	for mode, c := range map[report.Mode]struct {
		resource string
		want     map[string]map[string]string
	}{
		report.Default:   {"", nil},
		report.Burstable: {nodes.CPU, map[string]map[string]string{"requests": {"cpu": "125m"}}},
		report.Tenon:     {nodes.BatchCPU, map[string]map[string]string{"requests": amount, "limits": amount}},
	} {
		b := placingOf(t, 3, 125, "exit 1")
		all := b.batchPodManifests(mode.Spec(), 0, &colocation.BatchPods{Created: 3, Each: 125, Resource: c.resource})
		names := map[any]bool{}
		for _, o := range all {
			names[o["metadata"].(object)["name"]] = true
			if diff := cmp.Diff(c.want, requestsOf(t, o)); diff != "" {
				t.Errorf("%s: %s", mode, diff)
			}
		}
		if want := map[any]bool{"batch-1": true, "batch-2": true, "batch-3": true}; !maps.Equal(names, want) {
			t.Errorf("%s: pods %v", mode, names)
		}
	}
}

// fakeScheduler is a kubectl of node a, on which pods of others request 70m of 1000m CPU
// and 100 of 600 batch-cpu. It runs in a directory with the states of the batch pods, of
// which a line is one, and writes there what it was asked to change.
const fakeScheduler = `cd %s
case "$*" in
"get -o json nodes") echo '{"items":[{"metadata":{"name":"a"},"status":{"capacity":{"cpu":"2"},"allocatable":{"cpu":"1","kubernetes.io/batch-cpu":"600","pods":"110"}}}]}' ;;
"get -o json pods --all-namespaces"*) echo '{"items":[{"spec":{"containers":[{"resources":{"requests":{"cpu":"70m","kubernetes.io/batch-cpu":"100"}}}]}}]}' ;;
"get --raw"*) exit 1 ;;
apply*) cat > applied ;;
"get -o json pods -l"*) n=$(($(cat asked 2>/dev/null || echo 0) + 1)); echo $n > asked; f=states; [ $n -gt 1 ] && [ -e later ] && f=later
	printf '{"items":['; i=0; while read -r s; do i=$((i + 1)); [ $i -gt 1 ] && printf ,; printf '{"metadata":{"name":"batch-%%d"},"status":%%s}' $i "$s"; done < $f; echo ']}' ;;
delete*) echo "$*" > deleted ;;
logs*) echo "it was killed" ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac`

// TestTheShellComesBeforeTheBatchWork runs the command of a batch pod with a program in
// the place of ffmpeg that says its nice value.
func TestTheShellComesBeforeTheBatchWork(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ffmpeg"), []byte("#!/bin/sh\nnice\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for batch, want := range map[int]string{0: "0", 2: "19"} {
		b := placingOf(t, batch, 0, "exit 1")
		argv := slices.Clone(b.transcode(0)["command"].([]string))
		argv[2] = strings.ReplaceAll(argv[2], progressFiles, filepath.Join(dir, fmt.Sprintf("of-%d-", batch)))
		pod := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		pod.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		if out, err := pod.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		said, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("of-%d-1", batch)))
		nice, _, _ := strings.Cut(string(said), "\n")
		if own, _ := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || batch > 0 && nice != want || batch == 0 && nice != fmt.Sprint(20-own) {
			t.Errorf("%d batch pods: the batch work has nice value %q, want %s; error %v", batch, said, want, err)
		}
	}
}

// TestTheCountsAreThoseOfTheScheduler places pods of which some find no room. These are
// removed, and the others run.
func TestTheCountsAreThoseOfTheScheduler(t *testing.T) {
	const (
		running = `{"phase":"Running"}`
		pending = `{"phase":"Pending"}`
		noRoom  = `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}`
		refused = `{"phase":"Failed","reason":"OutOfkubernetes.io/batch-cpu"}`
		killed  = `{"phase":"Failed","reason":"Error"}`
	)
	for name, c := range map[string]struct {
		mode          report.Mode
		states, later []string
		want          colocation.BatchPods
		run, deleted  string
		fault         string
	}{
		"BestEffort": {report.Default, []string{running, running, running}, nil, colocation.BatchPods{Created: 3, Placed: 3, Each: 125}, "batch-1 batch-2 batch-3", "", ""},
		"CPU requests": {report.Burstable, []string{noRoom, running, noRoom}, nil,
			colocation.BatchPods{Created: 3, Placed: 1, Each: 125, Resource: nodes.CPU, Allocatable: 1000, Free: 930}, "batch-2", "batch-1 batch-3", ""},
		"batch-cpu": {report.Tenon, []string{running, refused, running}, nil,
			colocation.BatchPods{Created: 3, Placed: 2, Each: 125, Resource: nodes.BatchCPU, Allocatable: 600, Free: 500}, "batch-1 batch-3", "batch-2", ""},
		"room after a moment": {report.Tenon, []string{running, pending, noRoom}, []string{running, running, running},
			colocation.BatchPods{Created: 3, Placed: 3, Each: 125, Resource: nodes.BatchCPU, Allocatable: 600, Free: 500}, "batch-1 batch-2 batch-3", "", ""},
		"no room at all":  {report.Burstable, []string{noRoom, noRoom, noRoom}, nil, colocation.BatchPods{Created: 3, Each: 125, Resource: nodes.CPU, Allocatable: 1000, Free: 930}, "", "batch-1 batch-2 batch-3", ""},
		"one that failed": {report.Default, []string{running, killed, running}, nil, colocation.BatchPods{}, "", "", "pod tenon-lab/batch-2 ended (Failed) Error: it was killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, lines := range map[string][]string{"states": c.states, "later": c.later} {
				if len(lines) > 0 {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			b := placingOf(t, 3, 125, fmt.Sprintf(fakeScheduler, dir))
			run, got, err := b.place(t.Context(), c.mode.Spec(), 0)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("error %v, want %q", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, *got); diff != "" || strings.Join(run, " ") != c.run {
				t.Errorf("%v run: %s", run, diff)
			}
			deleted, err := os.ReadFile(filepath.Join(dir, "deleted"))
			if err != nil && !(c.deleted == "" && errors.Is(err, os.ErrNotExist)) {
				t.Fatal(err)
			}
			if names := strings.TrimSpace(string(deleted)); c.deleted == "" && names != "" || c.deleted != "" && !strings.HasSuffix(names, " "+c.deleted) {
				t.Errorf("it removed %q, want %q", names, c.deleted)
			}
			applied, err := os.ReadFile(filepath.Join(dir, "applied"))
			if err != nil || strings.Count(string(applied), `"kind":"Pod"`) != 3 {
				t.Errorf("it created %s, error %v", applied, err)
			}
		})
	}
}

// TestBatchPodsAskForTheTestedCPUsTogether checks the default of --batch-pod-cpu, and the
// number of processes in a pod.
func TestBatchPodsAskForTheTestedCPUsTogether(t *testing.T) {
	for _, c := range []struct {
		tested, pods, processes int
		given, each             unit.MilliCPU
	}{{1, 8, 1, 0, 125}, {4, 8, 1, 0, 500}, {32, 4, 6, 0, 8000}, {1, 4, 1, 60, 60}, {1, 5000, 1, 0, 1}} {
		b := placingOf(t, c.pods, c.given, "exit 1")
		b.Place.Tested = unit.CPUSetOf()
		for cpu := range c.tested {
			b.Place.Tested = b.Place.Tested.Union(unit.CPUSetOf(unit.CPU(cpu)))
		}
		b.size()
		if got := b.each(); got != c.each || b.processes != c.processes {
			t.Errorf("%d pods on %d CPUs ask for %v each and have %d processes, want %v and %d", c.pods, c.tested, got, b.processes, c.each, c.processes)
		}
	}
}

// TestSeveralBatchPodsCountAsOne adds up what the shells in two pods say.
func TestSeveralBatchPodsCountAsOne(t *testing.T) {
	k := kubectl.Client{Path: fakeKubectl(t, `shift 4; exec "$@"`)}
	s := &podSampler{tested: unit.CPUSetOf(1)}
	for _, frames := range []string{"10", "30"} {
		shell, err := k.Open(batchPod, `while read -r _; do echo usage_usec 5; echo throttled_usec 2; echo frame=`+frames+`; echo ,; echo .; done`)
		if err != nil {
			t.Fatal(err)
		}
		defer shell.Close()
		s.batch = append(s.batch, shell)
	}
	c, err := s.askBatch()
	var frames []float64
	for _, m := range c.progress {
		frames = append(frames, m.Frames)
	}
	if err != nil || c.usage.Microseconds() != 10 || c.throttled.Microseconds() != 4 || !slices.Equal(frames, []float64{10, 30}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := (&podSampler{}).askBatch(); err != nil || c.usage != 0 || len(c.progress) != 0 {
		t.Errorf("without pods: %+v, %v", c, err)
	}
}
