package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/test/turn"
)

// inPods are the experiments on colocation in pods. A mode takes most of a minute, so
// one of them runs for each commit that installs the chart.
var inPods = []string{"colocation", "switched", "published", "batch-pods"}

// experiment runs the lab on the cluster, for two seconds a mode. It checks that the
// lab leaves the ConfigMap, the node and its own namespace as they were.
func (h *chart) experiment() {
	bin := filepath.Join(programs(h.t), "tenon")
	before := h.strategies(h.t)
	if turn.Runs(len(inPods), inPods, "colocation") {
		h.t.Run("lab", func(t *testing.T) { h.colocation(t, bin) })
	}
	if turn.Runs(len(inPods), inPods, "switched") {
		h.t.Run("switched", func(t *testing.T) { h.switched(t, bin) })
	}
	if turn.Runs(len(inPods), inPods, "published") {
		h.t.Run("published", func(t *testing.T) { h.published(t, bin) })
	}
	if turn.Runs(len(inPods), inPods, "batch-pods") {
		h.t.Run("batch-pods", func(t *testing.T) { h.batchPods(t, bin) })
	}
	if after := h.strategies(h.t); !reflect.DeepEqual(after, before) {
		h.t.Errorf("the ConfigMap says %v, said %v", after, before)
	}
	// The requests of a batch pod must not count as CPU requests.
	if cpu := h.kubectl("get", "pod", "first", "-o", "jsonpath={.status.resources.requests.cpu}"); cpu != "" && cpu != "2m" && cpu != "3m" {
		h.t.Errorf("the kubelet counts a request of %s CPUs for a batch pod", cpu)
	}
	if labels := h.kubectl("get", "node", h.n.Name, "-o", "jsonpath={.metadata.labels}"); strings.Contains(labels, "tenon.sh/lab") {
		h.t.Errorf("the node is still labelled: %s", labels)
	}
	if left := h.kubectl("get", "pods,configmaps", "-n", "tenon-lab", "-o", "name"); strings.Contains(left, "pod/") || strings.Contains(left, "nginx-conf") {
		h.t.Errorf("left: %s", left)
	}
}

// colocation checks that the experiment works, and that it writes the expected files.
// It does not check the measured values.
func (h *chart) colocation(t *testing.T, bin string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "results")
	lab := h.c.Command(t.Context(), bin, "lab", "colocation", "--kubernetes", "--client-cpus", "0", "--blocks", "1", "--no-retry",
		"--duration", "2s", "--load", "5", "--modes", "exclusive,exclusive-warm,default-65,tenon-65", "--out", out)
	said, err := lab.CombinedOutput()
	t.Logf("%s", said)
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Experiment struct {
			TestedCPUs string `json:"tested_cpus"`
			Kubernetes struct {
				Node string `json:"node"`
			} `json:"kubernetes"`
			Versions map[string]string `json:"versions"`
		} `json:"experiment"`
	}
	read(t, filepath.Join(out, "result.json"), &result)
	if e := result.Experiment; e.TestedCPUs != "1" || e.Kubernetes.Node != h.n.Name || e.Versions["kubelet"] == "" || e.Versions["tenond"] == "" {
		t.Errorf("the experiment was on %+v", e)
	}
	for _, mode := range []string{"exclusive", "exclusive-warm", "default-65", "tenon-65"} {
		files, _ := filepath.Glob(filepath.Join(out, "runs", "???-"+mode+".json"))
		if len(files) != 1 {
			t.Errorf("%d runs of %s", len(files), mode)
			continue
		}
		var r struct {
			Void       []string `json:"void"`
			Requests   int      `json:"requests"`
			LSCPU      float64  `json:"ls_cpus_used"`
			BECPU      float64  `json:"be_cpus_used"`
			OtherCPU   float64  `json:"other_cpus_used"`
			Frames     float64  `json:"be_frames"`
			Timeslices int      `json:"ls_timeslices"`
		}
		read(t, files[0], &r)
		if r.Requests == 0 || r.LSCPU <= 0 || r.Timeslices == 0 {
			t.Errorf("%s: of the service it counted %+v", mode, r)
		}
		if beside := strings.HasSuffix(mode, "-65"); beside != (r.BECPU > 0) || beside != (r.Frames > 0) {
			t.Errorf("%s: of the batch work it counted %+v", mode, r)
		}
		for _, why := range r.Void {
			if strings.Contains(why, "tenond") {
				t.Errorf("%s: %s", mode, why)
			}
		}
	}
}

// switched kills a lab with SIGKILL while its batch pod is frozen: the pod must run
// again. The next lab removes what that one left, and switches the modes to the end.
func (h *chart) switched(t *testing.T, bin string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "results")
	args := []string{"lab", "colocation", "--kubernetes", "--client-cpus", "0", "--starts", "1", "--start-length", "8s", "--no-retry", "--load", "5"}
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		t.Fatal(err)
	}
	lab := h.c.Command(t.Context(), bin, append(args, "--no-check", "--out", out+"-killed", "--modes", "frozen,default")...)
	var said strings.Builder
	lab.Stdout, lab.Stderr = &said, &said
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = lab.Wait() // its status is that of SIGKILL
	}()
	var group string
	err = retry(t.Context(), 3*time.Minute, func() error {
		select {
		case <-ended:
			return fmt.Errorf("%w: the lab ended: %s", errFinal, said.String())
		default:
		}
		var err error
		group, err = frozenBelow(tree, strings.TrimPrefix(h.n.CgroupRoot, "/"))
		return err
	})
	if err != nil {
		t.Fatalf("the batch work was never frozen: %v", err)
	}
	pid, err := PID(lab)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	err = retry(t.Context(), 20*time.Second, func() error {
		is, err := tree.IsFrozen(group)
		if is {
			err = errors.New("it is frozen")
		}
		return err
	})
	if err != nil {
		t.Errorf("the batch work of a killed lab stays frozen: %v", err)
	}
	if some, err := tree.IsPopulated(group); err != nil || !some {
		t.Errorf("nothing of the batch work outlived the lab (%v), so the test shows nothing", err)
	}

	text, err := h.c.Command(t.Context(), bin, append(args, "--out", out)...).CombinedOutput()
	t.Logf("%s", text)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(out, "runs", "???-switched.json"))
	if len(files) != 1 {
		t.Fatalf("%d starts", len(files))
	}
	var r struct {
		Windows []struct {
			Mode     string  `json:"mode"`
			Requests int     `json:"requests"`
			LSCPU    float64 `json:"ls_cpus_used"`
			BECPU    float64 `json:"be_cpus_used"`
			Frames   float64 `json:"be_frames"`
		} `json:"windows"`
	}
	read(t, files[0], &r)
	beside, frames, seen := map[bool]float64{}, 0.0, map[string]bool{}
	for _, w := range r.Windows {
		seen[w.Mode] = true
		beside[w.Mode == "frozen"] += w.BECPU
		frames += w.Frames
		if w.Requests == 0 || w.LSCPU <= 0 {
			t.Errorf("of the service it counted %+v", w)
		}
	}
	var e struct {
		Check *struct {
			CPUs     int `json:"cpus"`
			Programs []struct {
				Name string `json:"name"`
			} `json:"programs"`
			Windows int `json:"windows"`
		} `json:"check"`
	}
	read(t, filepath.Join(out, "experiment.json"), &e)
	if e.Check == nil || e.Check.CPUs < 2 || len(e.Check.Programs) == 0 || e.Check.Windows == 0 {
		t.Errorf("the node was not checked before the run: %+v", e.Check)
	}
	// On a busy machine the load may end before the last turns.
	if len(seen) != 4 || frames <= 0 {
		t.Errorf("%d windows of %v with %.0f frames", len(r.Windows), seen, frames)
	}
	if beside[true] > 0.1*beside[false] {
		t.Errorf("the batch work used %.3f CPUs while it was frozen, and %.3f in the other turns", beside[true], beside[false])
	}
}

// frozenBelow returns a frozen cgroup below another.
func frozenBelow(tree *cgroup.Tree, root string) (string, error) {
	all, err := tree.Paths()
	if err != nil {
		return "", err
	}
	for _, path := range all {
		if strings.HasPrefix(path, root+"/") {
			if is, err := tree.IsFrozen(path); err == nil && is {
				return path, nil
			}
		}
	}
	return "", errors.New("no cgroup is frozen")
}

// A listedPod is what the API server says of a batch pod: the resource by which it asks
// for CPU, and whether it runs or found no room.
type listedPod struct {
	resource     string
	runs, noRoom bool
}

// listed returns the batch pods of the lab, by their names.
func (h *chart) listed() (map[string]listedPod, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				NodeName   string
				Containers []struct {
					Resources struct{ Requests map[string]string }
				}
			}
			Status struct {
				Phase      string
				Conditions []struct{ Type, Status string }
			}
		}
	}
	text, err := h.c.Kubectl(h.t.Context(), "get", "pods", "-n", "tenon-lab", "-l", "app=batch", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &list)
	}
	found := map[string]listedPod{}
	for _, p := range list.Items {
		b := listedPod{runs: p.Status.Phase == "Running" && p.Spec.NodeName == h.n.Name}
		for name := range p.Spec.Containers[0].Resources.Requests {
			b.resource = name
		}
		for _, c := range p.Status.Conditions {
			b.noRoom = b.noRoom || c.Type == "PodScheduled" && c.Status == "False"
		}
		found[p.Metadata.Name] = b
	}
	return found, err
}

// batchPods has the scheduler place two batch pods in each way to ask for CPU. The
// counts of the lab must be those of the API server, which is asked meanwhile.
func (h *chart) batchPods(t *testing.T, bin string) {
	t.Helper()
	// The default amounts follow from the use of the whole machine.
	const amounts = "node.koordinator.sh/colocation-strategy"
	h.kubectl("annotate", "node", h.n.Name, amounts+`={"enable": true, "cpuReclaimThresholdPercent": 1000, "memoryReclaimThresholdPercent": 95}`)
	defer h.kubectl("annotate", "node", h.n.Name, amounts+"-")
	const pods, each = 2, 60
	out := filepath.Join(t.TempDir(), "results")
	lab := h.c.Command(t.Context(), bin, "lab", "colocation", "--kubernetes", "--client-cpus", "0", "--blocks", "1", "--no-retry", "--duration", "2s",
		"--load", "5", "--batch-pods", fmt.Sprint(pods), "--batch-pod-cpu", fmt.Sprintf("%dm", each), "--modes", "default,burstable,tenon", "--out", out)
	var said strings.Builder
	lab.Stdout, lab.Stderr = &said, &said
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- lab.Wait() }()
	running, waiting := map[string]int{}, map[string]int{} // the most at one time, by resource
	for over := false; !over; {
		select {
		case err := <-ended:
			t.Logf("%s", said.String())
			if over = true; err != nil {
				t.Fatal(err)
			}
		case <-time.After(200 * time.Millisecond):
			found, err := h.listed()
			if err != nil {
				continue // the namespace is not there yet, or no more
			}
			runs, noRoom := map[string]int{}, map[string]int{}
			for _, p := range found {
				if p.runs {
					runs[p.resource]++
				}
				if p.noRoom {
					noRoom[p.resource]++
				}
			}
			for _, resource := range []string{"", "cpu", "kubernetes.io/batch-cpu"} {
				running[resource], waiting[resource] = max(running[resource], runs[resource]), max(waiting[resource], noRoom[resource])
			}
		}
	}
	// On a busy machine the runs may be void, and the result then has no figures of them.
	for mode, resource := range map[string]string{"default": "", "burstable": "cpu", "tenon": "kubernetes.io/batch-cpu"} {
		files, _ := filepath.Glob(filepath.Join(out, "runs", "???-"+mode+".json"))
		if len(files) != 1 {
			t.Errorf("%d runs of %s", len(files), mode)
			continue
		}
		var r struct {
			BatchPods struct {
				Created     int    `json:"created"`
				Placed      int    `json:"placed"`
				Each        int    `json:"each_mcpu"`
				Resource    string `json:"resource"`
				Allocatable int    `json:"allocatable_mcpu"`
				Free        int    `json:"free_mcpu"`
			} `json:"batch_pods"`
			BECPU float64 `json:"be_cpus_used"`
		}
		read(t, files[0], &r)
		p, want := r.BatchPods, pods
		if p.Created != pods || p.Each != each || p.Resource != resource || p.Placed != running[resource] || pods-p.Placed != waiting[resource] {
			t.Errorf("%s: the lab counted %+v, and of the API server %d run and %d found no room", mode, p, running[resource], waiting[resource])
		}
		switch resource {
		case "cpu":
			// nginx requests 760m of the only CPU of the pods, tenond 55m with its watchdog,
			// and the two managers 100m.
			if want = 1; p.Allocatable != 1000 || p.Free < each || p.Free >= pods*each {
				t.Errorf("%s: %+v, want room for one pod in 1000m", mode, p)
			}
		case "kubernetes.io/batch-cpu":
			if p.Free > p.Allocatable || p.Free < pods*each {
				t.Errorf("%s: %+v, want room for all pods", mode, p)
			}
		}
		if p.Placed != want || r.BECPU <= 0 {
			t.Errorf("%s: %+v, and they used %.3f CPUs, want %d pods", mode, p, r.BECPU, want)
		}
	}
}

// published runs the published experiment in pods, with its third mode and its closed
// loop. It checks that tenond applied the ConfigMap of the third mode, and that the
// figures stand beside those of the document.
func (h *chart) published(t *testing.T, bin string) {
	t.Helper()
	// The default amounts follow from the use of the whole machine, and another batch pod is
	// here, so the node offers more than they are.
	const amounts = "node.koordinator.sh/colocation-strategy"
	h.kubectl("annotate", "node", h.n.Name, amounts+`={"enable": true, "cpuReclaimThresholdPercent": 1000, "memoryReclaimThresholdPercent": 95}`)
	defer h.kubectl("annotate", "node", h.n.Name, amounts+"-")
	out := filepath.Join(t.TempDir(), "results")
	modes := []string{"exclusive", "slo-aware"} // a mode in pods takes most of a minute
	if turn.All() {
		modes = append(modes, "default", "slo-aware-quota")
	}
	lab := h.c.Command(t.Context(), bin, "lab", "published", "colocation", "--kubernetes", "--client-cpus", "0", "--blocks", "1", "--no-retry",
		"--duration", "2s", "--client", "wrk", "--modes", strings.Join(modes, ","), "--out", out)
	said, err := lab.CombinedOutput()
	t.Logf("%s", said)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(said), "In the document: Mode 1, expected output of wrk -t6 -c54 -d60s.") {
		t.Error("the table of the document is missing")
	}
	for _, mode := range modes {
		files, _ := filepath.Glob(filepath.Join(out, "runs", "???-"+mode+".json"))
		if len(files) != 1 {
			t.Errorf("%d runs of %s", len(files), mode)
			continue
		}
		var r struct {
			Void     []string `json:"void"`
			Answered float64  `json:"answered_per_second"`
			BECPU    float64  `json:"be_cpus_used"`
		}
		read(t, files[0], &r)
		if beside := mode != "exclusive"; r.Answered <= 0 || beside != (r.BECPU > 0) {
			t.Errorf("%s: it counted %+v", mode, r)
		}
		for _, why := range r.Void {
			if strings.Contains(why, "tenond") {
				t.Errorf("%s: %s", mode, why)
			}
		}
	}
}

// strategies returns the parsed content of the ConfigMap, which does not depend
// on how the text is formatted.
func (h *chart) strategies(t *testing.T) map[string]any {
	t.Helper()
	var data map[string]string
	text := h.kubectl("get", "configmap", "-n", home, "slo-controller-config", "-o", "jsonpath={.data}")
	err := json.Unmarshal([]byte(text), &data)
	says := map[string]any{}
	for key, value := range data {
		var v any
		err = errors.Join(err, json.Unmarshal([]byte(value), &v))
		says[key] = v
	}
	if err != nil {
		t.Fatal(err)
	}
	return says
}

func read(t *testing.T, file string, v any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}
