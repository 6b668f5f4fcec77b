package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
)

// generous is a ConfigMap that makes even a busy machine offer batch resources.
const generous = `{"enable": true, "metricAggregateDurationSeconds": 60, "cpuReclaimThresholdPercent": 1000, "memoryReclaimThresholdPercent": 95}`

// A watchedNode is a node whose values the test reads every second during a
// fault.
type watchedNode struct {
	*agent
	be    []string // the best-effort pods' cgroups
	ls    string
	begun time.Time

	mu    sync.Mutex // guards the fields below
	now   string     // the current part of the time line
	lines []string
	wrong map[string]int // number of violations of each promise
	first map[string]string
}

// happens adds an event to the timeline. The event begins a new part of the
// timeline.
func (w *watchedNode) happens(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = what
	w.t.Logf("%5.1f s: %s", time.Since(w.begun).Seconds(), what)
}

func (w *watchedNode) keeps(promise string, holds bool, got any) {
	if holds {
		return
	}
	if w.wrong[promise]++; w.wrong[promise] == 1 {
		w.first[promise] = fmt.Sprintf("%.1f s, %s: %v", time.Since(w.begun).Seconds(), w.now, got)
	}
}

// look adds a line to the timeline.
func (w *watchedNode) look(client *http.Client) {
	number := func(controller, group, file string) int {
		text, err := os.ReadFile(filepath.Join(w.n.Cgroup(controller, filepath.Join("kubepods", group)), file))
		if err != nil {
			return -2 // the file is gone
		}
		var n int
		if _, err := fmt.Sscan(string(text), &n); err != nil {
			return -3
		}
		return n
	}
	body, served := get(w.t.Context(), client, "http://127.0.0.1:8000/")
	answers := "yes"
	if _, err := w.c.Get(w.t.Context(), "/readyz"); err != nil {
		answers = "no"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	most := number("cpu", "besteffort", "cpu.cfs_quota_us")
	line := []any{fmt.Sprintf("%.1f", time.Since(w.begun).Seconds()), w.now, answers, most}
	w.keeps("the best-effort class has a bound", most > 0, most)
	for _, g := range w.be {
		idle, shares, quota, memory := number("cpu", g, "cpu.idle"), number("cpu", g, "cpu.shares"), number("cpu", g, "cpu.cfs_quota_us"), number("memory", g, "memory.limit_in_bytes")
		line = append(line, idle, shares, quota, memory)
		// When the kubelet ends a pod, it creates the cgroups of the pod once
		// more, without processes.
		if idle == -2 || !w.runs(g) {
			continue
		}
		w.keeps("a best-effort pod is idle", idle == 1, fmt.Sprint(g, " ", idle))
		w.keeps("a best-effort pod's memory is bounded", memory > 0 && memory <= 2<<30, fmt.Sprint(g, " ", memory))
	}
	lsIdle, lsShares, lsQuota, lsMemory := number("cpu", w.ls, "cpu.idle"), number("cpu", w.ls, "cpu.shares"), number("cpu", w.ls, "cpu.cfs_quota_us"), number("memory", w.ls, "memory.limit_in_bytes")
	w.keeps("the service has what it had", lsIdle == 0 && lsShares == 1536 && (lsQuota < 0 || lsQuota >= 150000) && lsMemory == 1<<30, fmt.Sprint(lsIdle, lsShares, lsQuota, lsMemory))
	w.keeps("nginx answers", served == nil && len(body) == 612, served)
	rss, anon := memoryOf(w.pid)
	w.keeps("tenond runs", rss > 0, rss)
	said := w.said()
	line = append(line, lsShares, lsQuota, lsMemory, rss, anon, strings.Count(said, "\n"), w.countIntents())
	w.lines = append(w.lines, strings.TrimRight(fmt.Sprintln(line...), "\n"))
}

// runs reports whether a process is in the cgroups of a pod.
func (w *watchedNode) runs(group string) bool {
	all, err := groupsBelow(w.n.Cgroup("cpu", filepath.Join("kubepods", group)))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(dir string) bool {
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // a removed cgroup has no processes
		return len(procs) > 0
	})
}

// watch calls the method look every second until the returned function is called.
func (w *watchedNode) watch() (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: w.c.Dial}}
	w.begun, w.wrong, w.first = time.Now(), map[string]int{}, map[string]string{}
	go func() {
		defer close(done)
		for tick := time.NewTicker(time.Second); ; {
			w.look(client)
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-done })
}

// judge fails the test for each promise that Tenon broke during the fault.
func (w *watchedNode) judge() {
	w.t.Helper()
	for _, p := range slices.Sorted(maps.Keys(w.wrong)) {
		w.t.Errorf("%d of %d times it was not so that %s; at first at %s", w.wrong[p], len(w.lines), p, w.first[p])
	}
}

// batchResources returns the batch resources of the node.
func (w *watchedNode) batchResources() (cpu, memory int64) {
	w.t.Helper()
	text, err := w.c.Get(w.t.Context(), "/api/v1/nodes/"+w.n.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	var n corev1.Node
	if err := json.Unmarshal(text, &n); err != nil {
		w.t.Fatal(err)
	}
	c, m := n.Status.Allocatable["kubernetes.io/batch-cpu"], n.Status.Allocatable["kubernetes.io/batch-memory"]
	return c.Value(), m.Value()
}

// leader returns the manager that holds the lease, and the time of its last
// renewal.
func (w *watchedNode) leader() (string, time.Time) {
	w.t.Helper()
	out, _ := w.c.Kubectl(w.t.Context(), "get", "lease", "tenon-manager", "-n", "tenon-system", "-o", "jsonpath={.spec.holderIdentity} {.spec.renewTime}")
	holder, at, _ := strings.Cut(out, " ")
	renewed, _ := time.Parse(time.RFC3339Nano, at)
	return holder, renewed
}

// TestTheAPIServerGoesAway stops the API server for 20 s (TENON_TEST_LONG=1:
// ten minutes) while nginx and ffmpeg fill the node. Meanwhile the kubelet
// restarts, so that it knows no pod. Best-effort work must keep its bounds, and
// so must a pod that was deleted just before. The service must keep its values.
// No process of Tenon may end except the leading manager. After the API server
// is back, the node must become Ready, a leader and the reports must come back,
// and a new pod must get its bounds.
func TestTheAPIServerGoesAway(t *testing.T) {
	inTurn(t)
	runParallel(t)
	// With the usual authorization, the kubelet asks the API server whether a
	// client has access. While the API server is away, the kubelet answers 500.
	// For some seconds afterwards, its list may be empty. With AlwaysAllow, the
	// list is empty all the time.
	lets := NodeOptions{KubeletArgs: pickLength([]string{"--authorization-mode=AlwaysAllow"}, nil)}
	c, n := upWith(t, "no-api", lets)
	offer(t, c, n, 4000, "6Gi")
	a := newAgent(t, c, n)
	a.apply(strings.Replace(strings.Replace(strategies, "THRESHOLD", "", 1), `{"enable": true}`, generous, 1))
	kubectl(t, c, "apply", "-f", serviceAndBatch+"ls-nginx.yaml", "-f", serviceAndBatch+"besteffort-ffmpeg.yaml")
	// A shell without a trap ignores SIGTERM as PID 1, so the pod lives until
	// the end of its grace period.
	deleted := a.pod(strings.Replace(batchPod, "terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds: 3600", 1), "deleted", "besteffort")
	pods := []string{"nginx", "besteffort-ffmpeg"}
	for _, p := range pods {
		requireSoon(t, time.Minute, p+" runs", func() error { return phase(t, c, p, "Running") })
	}
	w := &watchedNode{agent: a, be: []string{"besteffort/pod" + uid(t, c, "besteffort-ffmpeg"), deleted}, ls: "pod" + uid(t, c, "nginx")}
	a.start()
	for _, group := range w.be {
		a.awaitValue(20*time.Second, "a best-effort pod is idle", "cpu", group, "cpu.idle", 1)
	}
	a.awaitValue(20*time.Second, "the kubelet's pods are bounded", "memory", w.be[0], "memory.limit_in_bytes", 2<<30)
	replicas := managers(t, c)
	requireSoon(t, 30*time.Second, "the managers have a leader, which has published", func() error {
		holder, _ := w.leader()
		if p := a.report().Status.Published; holder == "" || p == nil || p.Memory == nil {
			return fmt.Errorf("leader %q, published %+v", holder, p)
		}
		return nil
	})
	requireSoon(t, 20*time.Second, "the class is bounded", func() error {
		if q := a.read("cpu", "besteffort", "cpu.cfs_quota_us"); q <= 0 {
			return fmt.Errorf("its quota is %d", q)
		}
		return nil
	})
	ids := map[string]string{}
	for _, p := range append(pods, "deleted") {
		ids[p] = containers(t, c, p)
	}
	before, reportBefore := a.awaitSettled(), a.report().Status
	cpuBefore, memoryBefore := w.batchResources()
	leaderBefore, _ := w.leader()
	writes := witnessWrites(t, n)
	api := newServer(t, c)
	rawLog(t, "tenond.log", a.log)
	rawLog(t, "kubelet.log", filepath.Join(n.Dir, "kubelet.log"))
	for i, r := range replicas {
		rawLog(t, fmt.Sprintf("manager-%d.log", i), r.log)
	}

	stop := w.watch()
	defer stop()
	rss, anon := memoryOf(a.pid)
	w.happens("all-is-well")
	time.Sleep(pickLength(2*time.Second, 30*time.Second))
	kubectl(t, c, "delete", "pod", "deleted", "--wait=false")
	w.happens("api-gone")
	away := time.Now()
	api.kill()
	outage := pickLength(20*time.Second, 10*time.Minute)
	time.Sleep(outage / 3)
	restartWithoutServer(t, n)
	w.happens("api-gone-kubelet-new")
	if rest := time.Until(away.Add(outage)); rest > 0 {
		time.Sleep(rest)
	}
	if err := n.daemon("kubelet").checkRunning(); err != nil {
		t.Error(err)
	}
	if pickLength(true, false) && !strings.Contains(a.said(), "is not among those of the kubelet and still has processes") {
		t.Error("the kubelet did not tell an empty list, or tenond did not say so")
	}
	held := a.values()
	api.start()
	back := time.Now()
	w.happens("api-back")
	t.Logf("the API server was away for %.0f s", back.Sub(away).Seconds())
	for file, v := range held {
		if !bound(file) && before[file] != v {
			t.Errorf("without API server %s became %q of %q", file, v, before[file])
		}
	}
	for file := range before {
		if _, is := held[file]; !is {
			t.Errorf("without API server %s went", file)
		}
	}

	cpuAfter, memoryAfter := w.batchResources()
	var reportAfter v1alpha1.NodeReportStatus
	requireSoon(t, time.Minute, "tenond reports again", func() error {
		if reportAfter = a.report().Status; !reportAfter.Reported.After(back) {
			return fmt.Errorf("its report is of %v", reportAfter.Reported)
		}
		return nil
	})
	reported := time.Since(back)
	if reportAfter.Run != reportBefore.Run || reportAfter.Sequence <= reportBefore.Sequence {
		t.Errorf("report %s %d, before %s %d", reportAfter.Run, reportAfter.Sequence, reportBefore.Run, reportBefore.Sequence)
	}
	requireSoon(t, time.Minute, "the managers have a leader again", func() error {
		if holder, renewed := w.leader(); holder == "" || !renewed.After(back) {
			return fmt.Errorf("%q of %v", holder, renewed)
		}
		return nil
	})
	led := time.Since(back)
	leaderAfter, _ := w.leader()
	requireSoon(t, 90*time.Second, "the node is Ready", func() error { return n.AwaitReady(t.Context()) })
	ready := time.Since(back)
	requireSoon(t, time.Minute, "the pods are told again", func() error {
		if r := a.report().Status; r.Pods["BE"] != 2 || trouble(r) != "" {
			return fmt.Errorf("%v %s", r.Pods, trouble(r))
		}
		return nil
	})
	w.happens("pods-told")
	told := time.Since(back)
	requireSoon(t, time.Minute, "the node has what is published", func() error {
		r := a.report().Status
		gotCPU, gotMemory := w.batchResources()
		if p := r.Published; p == nil || p.CPU == nil || p.Memory == nil || p.CPU.MilliValue() != gotCPU || p.Memory.Value() != gotMemory {
			return fmt.Errorf("%d %d, published %+v", gotCPU, gotMemory, r.Published)
		}
		return nil
	})

	for _, p := range pods {
		if got := containers(t, c, p); got != ids[p] {
			t.Errorf("the containers of %s are %q and were %q", p, got, ids[p])
		}
	}
	kill(t, n, deleted)
	requireSoon(t, 40*time.Second, "the deleted pod goes", func() error {
		if _, err := os.Stat(n.Cgroup("cpu", "kubepods/"+deleted)); err == nil {
			return errors.New("its cgroup is there")
		}
		return nil
	})
	fresh := a.pod(strings.ReplaceAll(batchPod, "1k", "500"), "fresh", "besteffort")
	a.awaitValue(20*time.Second, "a pod that comes then is bounded", "memory", fresh, "memory.limit_in_bytes", 256<<20)
	a.awaitValue(20*time.Second, "and idle", "cpu", fresh, "cpu.idle", 1)
	a.apply(strings.Replace(strings.Replace(strategies, "THRESHOLD", "", 1), `{"enable": true}`, `{"enable": false}`, 1))
	// While the API server is away, a watch is tried again at most once per
	// minute.
	switched := time.Now()
	requireSoon(t, 90*time.Second, "the leader acts", func() error {
		if cpu, memory := w.batchResources(); cpu != 0 || memory != 0 {
			return fmt.Errorf("the node still has %dm and %d bytes", cpu, memory)
		}
		return nil
	})
	acted, actedAt := time.Since(switched), time.Since(back)
	stop()
	w.judge()

	gone := 0
	for i, r := range replicas {
		if r.ended() > 0 {
			gone++
		}
		t.Logf("manager %d ended %d times", i, r.ended())
		if r.ended() > 1 {
			t.Errorf("manager %d ended once more while it waited for the API server", i)
		}
		if strings.Contains(r.said(), "panic") {
			t.Errorf("manager %d panicked", i)
		}
	}
	if gone > 1 {
		t.Errorf("%d of 2 managers ended: webhooks would have been silent", gone)
	}
	rssAfter, anonAfter := memoryOf(a.pid)
	if anonAfter > anon+32<<10 {
		t.Errorf("tenond has %d KiB and had %d", anonAfter, anon)
	}
	by := map[string]int{}
	for _, x := range writes.writesSince(away) {
		if x.at.Before(back) {
			by[x.by+" "+strings.Replace(x.file, "pod", "pod ", 1)]++
		}
	}
	summary := fmt.Sprintf("API server away for %.1f s\nreport again after %.1f s, leader %.1f s, node Ready %.1f s, pods told %.1f s, a switch that was set %.1f s after the return on the node %.1f s later\n"+
		"batch before %dm %d bytes, at the return %dm %d bytes\nleader before %s, after %s; managers ended %d and %d times\n"+
		"tenond VmRSS %d -> %d KiB, RssAnon %d -> %d KiB\nreport before: %d of run %s at %s; after: %d of run %s at %s\n",
		back.Sub(away).Seconds(), reported.Seconds(), led.Seconds(), ready.Seconds(), told.Seconds(), (actedAt - acted).Seconds(), acted.Seconds(),
		cpuBefore, memoryBefore, cpuAfter, memoryAfter, leaderBefore, leaderAfter, replicas[0].ended(), replicas[1].ended(), rss, rssAfter, anon, anonAfter,
		reportBefore.Sequence, reportBefore.Run, reportBefore.Reported, reportAfter.Sequence, reportAfter.Run, reportAfter.Reported)
	t.Log(summary)
	for _, k := range slices.Sorted(maps.Keys(by)) {
		summary += fmt.Sprintf("writes while it was away: %4d %s\n", by[k], k)
	}
	writeRaw(t, "summary.txt", summary)
	writeRaw(t, "timeline.txt", "seconds part api be_quota_us ffmpeg_idle ffmpeg_shares ffmpeg_quota_us ffmpeg_memory deleted_idle deleted_shares deleted_quota_us deleted_memory nginx_shares nginx_quota_us nginx_memory tenond_rss_kib tenond_anon_kib tenond_log_lines intends\n"+strings.Join(w.lines, "\n")+"\n")
	for name, r := range map[string]v1alpha1.NodeReportStatus{"report-before.json": reportBefore, "report-after.json": reportAfter} {
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Error(err)
		}
		writeRaw(t, name, string(text)+"\n")
	}
}

// kill kills the processes of a pod.
func kill(t *testing.T, n *Node, group string) {
	t.Helper()
	groups, err := groupsBelow(n.Cgroup("cpu", filepath.Join("kubepods", group)))
	must(t, err)
	for _, dir := range groups {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		must(t, err)
		for _, pid := range strings.Fields(string(procs)) {
			n, err := strconv.Atoi(pid)
			must(t, err)
			must(t, syscall.Kill(n, syscall.SIGKILL))
		}
	}
}

// trouble returns the part of a report that lists the pods that the node does
// not know.
func trouble(r v1alpha1.NodeReportStatus) string {
	for _, c := range r.Conditions {
		if c.Type == "PodsKnown" && c.Status != "True" {
			return c.Message
		}
	}
	return ""
}
