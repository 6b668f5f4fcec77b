package pull

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/cluster/past"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	scrape = 120 // seconds between two samples
	hour   = 3600
	block  = 2 * hour // a block of the database
)

// A made series has a value at some times. Its function is called once for each
// time, in order.
type made struct {
	name string
	// twice says that two servers have read it, which both send it.
	twice bool
	value func(at int64) (float64, bool)
}

// program returns a program of the Debian package prometheus.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return path
}

// startPrometheus starts a Prometheus server with series from one time to another. It
// returns its URL.
func startPrometheus(t *testing.T, from, to int64, all []made) string {
	t.Helper()
	promtool, prometheus := program(t, "promtool"), program(t, "prometheus")
	dir := t.TempDir()
	data, text := filepath.Join(dir, "data"), filepath.Join(dir, "samples")
	var samples int64
	for begin := from; begin <= to; begin += block {
		f, err := os.Create(text)
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriterSize(f, 1<<20)
		for _, s := range all {
			for at := begin; at < min(begin+block, to+1); at += scrape {
				v, has := s.value(at)
				if !has {
					continue
				}
				names := []string{s.name}
				if s.twice {
					names = []string{s.name[:len(s.name)-1] + `,replica="0"}`, s.name[:len(s.name)-1] + `,replica="1"}`}
				}
				for _, name := range names {
					w.WriteString(name)
					w.WriteByte(' ')
					w.WriteString(strconv.FormatFloat(v, 'f', -1, 64))
					w.WriteByte(' ')
					w.WriteString(strconv.FormatInt(at, 10))
					w.WriteByte('\n')
					samples++
				}
			}
		}
		w.WriteString("# EOF\n")
		if err := errors.Join(w.Flush(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(promtool, "tsdb", "create-blocks-from", "openmetrics", "-q", text, data).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Logf("%d series, %d samples", len(all), samples)
	if err := os.Remove(text); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("scrape_configs: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	p := exec.Command(prometheus, "--config.file="+config, "--storage.tsdb.path="+data, "--web.listen-address="+address, "--storage.tsdb.retention.time=20y")
	p.Stdout, p.Stderr = log, log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s %v", text, errors.Join(err, log.Close()))
		}
	})
	for range 300 {
		if r, err := http.Get("http://" + address + "/-/ready"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("Prometheus is not ready")
	return ""
}

// random returns the same number below n for the same words.
func random(n int64, words ...any) int64 {
	h := fnv.New64a()
	fmt.Fprint(h, words...)
	return int64(h.Sum64() % uint64(n))
}

// A job is a container of a pod that uses CPU and memory, other amounts at each hour. It
// runs from one full hour to another.
type job struct {
	node, namespace, pod, container, id string
	from, to                            int64
	resets                              int64 // a time at which its counter begins at 0 again
	askedCPU, askedMemory               int64 // thousandths, KiB
	could                               bool  // it could be batch work
	batch                               bool  // it is batch work already
}

func (j *job) runs(h int64) bool { return j.from <= h*hour && h*hour < j.to }

// cpu and memory are what it uses in an hour, in thousandths and in KiB.
func (j *job) cpu(h int64) int64 {
	if !j.runs(h) {
		return 0
	}
	return 50 + random(900, j.pod, j.container, h)
}

func (j *job) memory(h int64) int64 {
	if !j.runs(h) {
		return 0
	}
	return 4 * (10_000 + random(200_000, j.container, j.pod, h))
}

// A fleet has jobs and the use of the nodes themselves.
type fleet struct {
	jobs   []job
	silent func(node string, at int64) bool // cAdvisor of the node has no samples
}

func systemCPU(node string, h int64) int64 { return 100 + random(400, node, "cpu", h) }
func systemMemory(node string, h int64) int64 {
	return 4 * (100_000 + random(100_000, node, "memory", h))
}

// counter adds up a rate, in thousandths per second, while it is there.
func counter(from, to, resets int64, rate func(h int64) int64, silent func(int64) bool) func(int64) (float64, bool) {
	sum := int64(0)
	return func(at int64) (float64, bool) {
		if at > from && at <= to {
			sum += rate((at-scrape)/hour) * scrape
		}
		if at == resets {
			sum = 0
		}
		return float64(sum) / 1000, at >= from && at <= to && !silent(at)
	}
}

func gauge(from, to int64, value func(h int64) int64, silent func(int64) bool) func(int64) (float64, bool) {
	return func(at int64) (float64, bool) {
		return float64(value(at / hour)), at >= from && at < to && !silent(at)
	}
}

func always(int64) bool { return false }

func kib(value func(int64) int64) func(int64) int64 {
	return func(h int64) int64 { return value(h) << 10 }
}

// constant has a value from one time to another.
func constant(name string, twice bool, from, to, value int64) made {
	return made{name, twice, func(at int64) (float64, bool) { return float64(value), at >= from && at < to }}
}

// cadvisor returns the series of cAdvisor about a node, which has it under a label. Two
// servers read it if twice.
func (f *fleet) cadvisor(label, node string, from, to int64, root, twice bool) (all []made) {
	silent := func(at int64) bool { return f.silent != nil && f.silent(node, at) }
	add := func(name string, value func(int64) (float64, bool)) {
		all = append(all, made{name, twice, value})
	}
	for i := range f.jobs {
		j := &f.jobs[i]
		if j.node != node {
			continue
		}
		for _, as := range []struct{ container, id string }{{j.container, j.id}, {"", "/pod"}, {"POD", "/sandbox"}} {
			if as.container == "" && j.container == "proxy" {
				continue // one series for the pod
			}
			name := fmt.Sprintf(`{%s=%q,namespace=%q,pod=%q,container=%q,id="/kubepods/%s%s"}`, label, node, j.namespace, j.pod, as.container, j.pod, as.id)
			add("container_cpu_usage_seconds_total"+name, counter(j.from, j.to, j.resets, j.cpu, silent))
			add("container_memory_working_set_bytes"+name, gauge(j.from, j.to, kib(j.memory), silent))
		}
	}
	if root {
		name := fmt.Sprintf(`{%s=%q,id="/"}`, label, node)
		add("container_cpu_usage_seconds_total"+name, counter(from, to, 0, func(h int64) int64 { return f.usedCPU(node, h) }, silent))
		add("container_memory_working_set_bytes"+name, gauge(from, to, kib(func(h int64) int64 { return f.usedMemory(node, h) }), silent))
	}
	return all
}

func (f *fleet) sum(node string, of func(*job) int64) (sum int64) {
	for i := range f.jobs {
		if j := &f.jobs[i]; j.node == node {
			sum += of(j)
		}
	}
	return sum
}

func (f *fleet) usedCPU(node string, h int64) int64 {
	return systemCPU(node, h) + f.sum(node, func(j *job) int64 { return j.cpu(h) })
}

func (f *fleet) usedMemory(node string, h int64) int64 {
	return systemMemory(node, h) + f.sum(node, func(j *job) int64 { return j.memory(h) })
}

// states returns the series of kube-state-metrics about the pods. It keeps the requests
// of a pod for an hour after its end.
func (f *fleet) states(owner func(*job) (kind, name string)) (all []made) {
	pods := map[string]*job{}
	var order []*job
	for _, j := range f.jobs { // a container that was started again is the same one
		key := j.pod + "/" + j.container
		if pods[key] == nil {
			pods[key] = &j
			order = append(order, &j)
		}
		pods[key].to = j.to
	}
	for _, j := range order {
		pod := fmt.Sprintf("namespace=%q,pod=%q", j.namespace, j.pod)
		if j.container != "proxy" { // once for each pod
			kind, name := owner(j)
			all = append(all, constant(fmt.Sprintf("kube_pod_owner{%s,owner_kind=%q,owner_name=%q}", pod, kind, name), true, j.from, j.to, 1))
			class := "Burstable"
			if j.askedCPU == 0 {
				class = "BestEffort"
			}
			for _, c := range []string{"Burstable", "BestEffort"} {
				is := int64(0)
				if c == class {
					is = 1
				}
				all = append(all, constant(fmt.Sprintf("kube_pod_status_qos_class{%s,qos_class=%q}", pod, c), true, j.from, j.to, is))
			}
			all = append(all, made{fmt.Sprintf(`kube_pod_status_phase{%s,phase="Running"}`, pod), true, func(at int64) (float64, bool) {
				is := 0.0
				if at < j.to {
					is = 1
				}
				return is, at >= j.from && at < j.to+hour
			}})
		}
		if j.batch {
			all = append(all, constant(fmt.Sprintf(`kube_pod_container_resource_requests{%s,node=%q,container=%q,resource="kubernetes_io_batch_cpu",unit="integer"}`, pod, j.node, j.container), true, j.from, j.to, 900))
		}
		if j.askedCPU > 0 {
			all = append(all,
				made{fmt.Sprintf(`kube_pod_container_resource_requests{%s,node=%q,container=%q,resource="cpu"}`, pod, j.node, j.container), true, func(at int64) (float64, bool) {
					return float64(j.askedCPU) / 1000, at >= j.from && at < j.to+hour
				}},
				constant(fmt.Sprintf(`kube_pod_container_resource_requests{%s,node=%q,container=%q,resource="memory"}`, pod, j.node, j.container), true, j.from, j.to+hour, j.askedMemory<<10))
		}
	}
	return all
}

// machines returns the series of kube-state-metrics about nodes of 8 CPUs and 16 GiB.
func machines(name, address string, from, to int64) []made {
	return []made{
		constant(fmt.Sprintf("kube_node_info{node=%q,internal_ip=%q}", name, address), true, from, to, 1),
		constant(fmt.Sprintf(`kube_node_status_capacity{node=%q,resource="cpu"}`, name), true, from, to, 8),
		constant(fmt.Sprintf(`kube_node_status_capacity{node=%q,resource="memory"}`, name), true, from, to, 16<<30),
		constant(fmt.Sprintf(`kube_node_status_capacity{node=%q,resource="pods"}`, name), true, from, to, 110),
	}
}

// optionsOf returns options to read from a server by some rules.
func optionsOf(t *testing.T, url string, days int64, c overcommit.Config) Options {
	return Options{Server: promapi.Server{URL: url}, Choice: Choice{Rules: c, Days: days, Step: 5}, Dir: filepath.Join(t.TempDir(), "past"), Now: now}
}

// readReal reads all nodes.
func readReal(t *testing.T, o Options) (*Past, map[string]prospect.Node) {
	t.Helper()
	p, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]prospect.Node{}
	for _, n := range nodesOf(t, p) {
		all[n.Name] = n
	}
	return p, all
}

// TestAWeekOfARealPrometheus makes a week of three nodes and compares each step with
// what it was made of: two servers that read the same, sandboxes, a counter that is
// reset, a container that starts again, pods that are renamed, a node that comes later,
// a hole, Jobs whose requests stay, batch work, and a service that its limit holds back.
func TestAWeekOfARealPrometheus(t *testing.T) {
	t.Parallel()
	const days = 7
	end := now.Unix() / day * day
	from := end - days*day
	reset, hole, joined := from+day+13*hour+1800, from+4*day+3*hour, from+2*day
	f := &fleet{silent: func(node string, at int64) bool { return node == "n2" && at > hole && at < hole+3*hour }}
	f.jobs = []job{
		{node: "n1", namespace: "shop", pod: "web-0", container: "app", id: "/a", from: from, to: end, askedCPU: 500, askedMemory: 400_000},
		{node: "n1", namespace: "shop", pod: "web-0", container: "proxy", id: "/b", from: from, to: end, askedCPU: 100, askedMemory: 100_000},
		{node: "n1", namespace: "kube-system", pod: "kube-proxy-1", container: "kube-proxy", id: "/a", from: from, to: end, askedCPU: 50, askedMemory: 50_000},
		{node: "n1", namespace: "batch", pod: "render", container: "render", id: "/a", from: from + 5*hour, to: end - day, batch: true},
		{node: "n2", namespace: "shop", pod: "api-0", container: "api", id: "/a", from: from, to: from + 3*day + 5*hour, resets: reset, askedCPU: 300, askedMemory: 300_000},
		{node: "n2", namespace: "shop", pod: "api-0", container: "api", id: "/b", from: from + 3*day + 5*hour, to: end, askedCPU: 300, askedMemory: 300_000},
		{node: "n2", namespace: "shop", pod: "cart-7c9d-aaaaa", container: "cart", id: "/a", from: from, to: from + 2*day + 12*hour, askedCPU: 300, askedMemory: 300_000},
		{node: "n2", namespace: "shop", pod: "cart-7c9d-bbbbb", container: "cart", id: "/a", from: from + 2*day + 12*hour, to: end, askedCPU: 300, askedMemory: 300_000},
		{node: "n3", namespace: "ads", pod: "bidder-5d9c7b6f4-x2x4z", container: "bidder", id: "/a", from: joined, to: end, askedCPU: 700, askedMemory: 200_000},
		{node: "n3", namespace: "dev", pod: "shell", container: "shell", id: "/a", from: joined, to: end, could: true},
	}
	for d := joined; d < end; d += day {
		f.jobs = append(f.jobs, job{node: "n3", namespace: "batch", pod: fmt.Sprintf("report-%d-abcde", d/60), container: "report", id: "/a", from: d + hour, to: d + 3*hour, askedCPU: 900, askedMemory: 500_000, could: true})
	}
	all := append(machines("n1", "10.0.0.1", from, end+1), machines("n2", "10.0.0.2", from, end+1)...)
	all = append(all, machines("n3", "10.0.0.3", joined, end+1)...)
	all = append(all, machines("n0", "10.0.0.4", from, joined)...) // which n3 replaces
	all = append(all, f.cadvisor("node", "n1", from, end, true, true)...)
	all = append(all, f.cadvisor("node", "n2", from, end, true, false)...)
	all = append(all, f.cadvisor("node", "n3", joined, end, true, false)...)
	all = append(all, f.states(func(j *job) (string, string) {
		switch j.namespace {
		case "batch":
			return "Job", strings.TrimSuffix(j.pod, "-abcde")
		case "ads":
			return "ReplicaSet", "bidder-5d9c7b6f4"
		}
		return "DaemonSet", j.pod
	})...)
	all = append(all, constant(`kube_node_labels{node="n3",label_agentpool="gpu"}`, true, joined, end+1, 1))
	for metric, rate := range map[string]func(h int64) int64{
		"container_cpu_cfs_periods_total":           func(int64) int64 { return 10_000 },
		"container_cpu_cfs_throttled_periods_total": func(h int64) int64 { return inMorning(h, 5_000) },
		"container_cpu_cfs_throttled_seconds_total": func(h int64) int64 { return inMorning(h, 300) },
	} {
		all = append(all, made{metric + `{node="n3",namespace="ads",pod="bidder-5d9c7b6f4-x2x4z",container="bidder",id="/kubepods/a"}`, true, counter(joined, end, 0, rate, always)})
	}
	url := startPrometheus(t, from, end, all)
	p, nodes := readReal(t, optionsOf(t, url, days, rules()))
	if s := p.Sources; s != (past.Sources{Label: "node", Containers: true, CPU: past.CAdvisor, Memory: past.CAdvisor, Owners: true, QoS: true, Requests: true, States: true, Batch: true, Held: true, HeldTime: true, Rate: 300}) || len(nodes) != 3 {
		t.Fatalf("%d nodes, %+v", len(nodes), s)
	}
	if s := p.Summary(); s.Known != 3 || s.Gone != 1 {
		t.Errorf("%+v", s)
	}
	compared := 0
	for name, n := range nodes {
		if n.CPU != 8000 || n.Memory != 16<<30 || (n.Pool == "gpu") != (name == "n3") || len(n.RoomCPU) != days*288 {
			t.Fatalf("%s: %v, %v, pool %s, %d steps", name, n.CPU, n.Memory, n.Pool, len(n.RoomCPU))
		}
		for i := range n.RoomCPU {
			begin := from + int64(i)*300
			compared += f.compare(t, name, n, i, begin, reset, hole, joined)
		}
	}
	if compared < 5000 {
		t.Errorf("only %d steps are compared", compared)
	}
	want := prospect.Hurt{Service: "ads/bidder", Minutes: 5 * 4 * 60, Lost: 5 * 4 * 3600 * 300 * time.Millisecond}
	if hurt := nodes["n3"].Hurt; len(hurt) != 1 || hurt[0] != want || len(nodes["n1"].Hurt)+len(nodes["n2"].Hurt) > 0 {
		t.Errorf("%v, want %v", hurt, want)
	}
	byMax := rules()
	byMax.CPU.Policy, byMax.Memory.Policy, byMax.MinServicePercent = overcommit.ByMaxUsageRequest, overcommit.ByRequest, 8
	_, nodes = readReal(t, optionsOf(t, url, days, byMax))
	f.compareRequests(t, nodes, from, hole, joined, byMax)
}

// inMorning returns v at four hours of each day.
func inMorning(h, v int64) int64 {
	if h%24 >= 8 && h%24 < 12 {
		return v
	}
	return 0
}

// compare compares one step of a node. It returns 1 if the step has a value.
func (f *fleet) compare(t *testing.T, name string, n prospect.Node, i int, begin, reset, hole, joined int64) int {
	t.Helper()
	switch {
	case name == "n3" && begin < joined, name == "n2" && begin >= hole && begin < hole+3*hour:
		if n.RoomCPU[i] != prospect.Absent || n.UsedCPU[i] != prospect.Absent || n.BatchCPU[i] != prospect.Absent {
			t.Fatalf("%s, step %d: room %d, used %d of a node that has no samples", name, i, n.RoomCPU[i], n.UsedCPU[i])
		}
		return 0
	case name == "n2" && begin <= reset && begin+300 >= reset:
		// What was used between the last sample and the reset is lost.
		if u := f.usedCPU(name, begin/hour); n.UsedCPU[i] != u || n.RoomCPU[i] < 4800-u || n.RoomCPU[i] > 4800-u+500 {
			t.Fatalf("%s, step %d with a reset: room %d, used %d of %d", name, i, n.RoomCPU[i], n.UsedCPU[i], u)
		}
		return 1
	}
	h := begin / hour
	used, could := f.usedCPU(name, h), f.sum(name, func(j *job) int64 {
		if !j.could {
			return 0
		}
		return j.cpu(h)
	})
	batch := f.sum(name, func(j *job) int64 {
		if !j.batch {
			return 0
		}
		return j.cpu(h)
	})
	room := max(4800-used+batch, 0)
	if n.UsedCPU[i] != used || n.RoomCPU[i] != room || n.BatchCPU[i] != could {
		t.Fatalf("%s, step %d: used %d, room %d, could be batch %d; made were %d, %d, %d", name, i, n.UsedCPU[i], n.RoomCPU[i], n.BatchCPU[i], used, room, could)
	}
	// The last step of an hour ends with the first sample of the next one.
	next := h
	if (begin+300)%hour == 0 && (name != "n2" || begin+300 < hole || begin >= hole+3*hour) && begin+300 < now.Unix()/day*day {
		next++
	}
	whole := max(f.usedMemory(name, h), f.usedMemory(name, next))
	ofPods := func(batch bool) int64 {
		return f.sum(name, func(j *job) int64 {
			if j.batch != batch {
				return 0
			}
			return max(j.memory(h), j.memory(next))
		})
	}
	services := ofPods(false)
	system := max(whole-services-ofPods(true), 0)
	free := max(int64(16<<30/100*65+(16<<30%100*65)/100)-(services+system)<<10, 0) >> 20
	if n.UsedMemory[i] != whole>>10 || n.RoomMemory[i] != free {
		t.Fatalf("%s, step %d: %d MiB used, %d MiB free; made were %d and %d", name, i, n.UsedMemory[i], n.RoomMemory[i], whole>>10, free)
	}
	return 1
}

// compareRequests compares the room where requests count.
func (f *fleet) compareRequests(t *testing.T, nodes map[string]prospect.Node, from, hole, joined int64, c overcommit.Config) {
	t.Helper()
	unneeded, rooms := 0, 0
	for name, n := range nodes {
		for i := range n.RoomCPU {
			begin := from + int64(i)*300
			h := begin / hour
			if (begin+300)%hour == 0 || name == "n3" && begin < joined || name == "n2" && begin >= hole && begin < hole+3*hour || h%24 == 13 {
				continue // pods come and go, or nothing was measured, or a counter was reset
			}
			used, asked, holds := map[string]unit.MilliCPU{}, map[string]unit.MilliCPU{}, map[string]unit.Bytes{}
			memory := map[string]unit.Bytes{}
			for _, j := range f.jobs {
				if j.node != name || !j.runs(h) || j.batch {
					continue
				}
				used[j.pod] += unit.MilliCPU(j.cpu(h))
				memory[j.pod] += unit.Bytes(j.memory(h)) << 10
				asked[j.pod] += unit.MilliCPU(j.askedCPU)
				holds[j.pod] += unit.Bytes(j.askedMemory) << 10
			}
			cpu := overcommit.Sums[unit.MilliCPU]{Capacity: 8000, System: unit.MilliCPU(systemCPU(name, h))}
			ram := overcommit.Sums[unit.Bytes]{Capacity: 16 << 30, System: unit.Bytes(systemMemory(name, h)) << 10}
			var requests unit.MilliCPU
			var held unit.Bytes
			for pod := range used {
				var r node.Maybe[unit.MilliCPU]
				var m node.Maybe[unit.Bytes]
				if asked[pod] > 0 {
					r, m = node.Some(asked[pod]), node.Some(holds[pod])
				}
				counts, _ := overcommit.Counted(c.CPU.Policy, node.Some(used[pod]), r)
				counted, _ := overcommit.Counted(c.Memory.Policy, node.Some(memory[pod]), m)
				cpu.Others, ram.Others, requests, held = cpu.Others+counts, ram.Others+counted, requests+asked[pod], held+holds[pod]
			}
			cpu.Unneeded = c.Unneeded(requests, 8000, held, 16<<30)
			ram.Unneeded = cpu.Unneeded
			if cpu.Unneeded {
				unneeded++
			} else {
				rooms++
			}
			wantCPU, wantMemory := overcommit.AmountOf(c.CPU, cpu).Value(), overcommit.AmountOf(c.Memory, ram).Value()
			if n.RoomCPU[i] != int64(wantCPU) || n.RoomMemory[i] != int64(wantMemory>>20) {
				t.Fatalf("%s, step %d: room %d and %d MiB; the formula gives %v and %d", name, i, n.RoomCPU[i], n.RoomMemory[i], wantCPU, wantMemory>>20)
			}
		}
	}
	if unneeded < 1000 || rooms < 1000 {
		t.Errorf("the node is not needed at %d steps, and needed at %d", unneeded, rooms)
	}
}

// TestAHoleOfKubeStateMetricsIsNotKnown has a node whose pods cAdvisor sees all day, and
// three hours without kube-state-metrics. The limits hold back a service and a batch pod.
func TestAHoleOfKubeStateMetricsIsNotKnown(t *testing.T) {
	t.Parallel()
	end := now.Unix() / day * day
	from := end - day
	hole := from + 9*hour
	f := &fleet{jobs: []job{
		{node: "n1", namespace: "shop", pod: "web-0", container: "app", id: "/a", from: from, to: end, askedCPU: 2000, askedMemory: 4 << 20},
		{node: "n1", namespace: "batch", pod: "render", container: "render", id: "/a", from: from, to: end, batch: true},
		{node: "n1", namespace: "dev", pod: "build", container: "build", id: "/a", from: from, to: end, askedCPU: 10, askedMemory: 1024, could: true},
	}}
	all := append(machines("n1", "10.0.0.1", from, end+1), f.states(func(j *job) (string, string) {
		if j.could {
			return "Job", j.pod
		}
		return "StatefulSet", "web"
	})...)
	away := func(at int64) bool { return at > hole && at < hole+3*hour }
	for i, s := range all {
		all[i].value = func(at int64) (float64, bool) {
			v, has := s.value(at)
			return v, has && !away(at)
		}
	}
	for _, pod := range []string{`namespace="shop",pod="web-0",container="app"`, `namespace="batch",pod="render",container="render"`} {
		for metric, rate := range map[string]int64{"periods": 10_000, "throttled_periods": 5_000, "throttled_seconds": 300} {
			all = append(all, made{fmt.Sprintf(`container_cpu_cfs_%s_total{node="n1",%s,id="/kubepods/a"}`, metric, pod), false, counter(from, end, 0, func(int64) int64 { return rate }, always)})
		}
	}
	all = append(all, f.cadvisor("node", "n1", from, end, true, false)...)
	url := startPrometheus(t, from, end, all)
	byRequest, least := rules(), rules()
	byRequest.CPU.Policy, byRequest.Memory.Policy = overcommit.ByMaxUsageRequest, overcommit.ByRequest
	least.MinServicePercent = 2 // of 8 CPUs
	for name, c := range map[string]overcommit.Config{"by usage": rules(), "by request": byRequest, "with a least service": least} {
		p, nodes := readReal(t, optionsOf(t, url, 1, c))
		if s := p.Sources; !s.States || !s.Batch || !s.Owners {
			t.Fatalf("%+v", s)
		}
		n := nodes["n1"]
		known := int64(0)
		for i := range n.RoomCPU {
			begin := from + int64(i)*300
			at, h := begin+300, begin/hour
			switch {
			case at > hole && at <= hole+300, at > hole+3*hour-300 && at < hole+3*hour, at == end:
				continue // the server takes a sample for five minutes, and all pods end
			case away(at):
				if n.RoomCPU[i] != prospect.Absent || n.RoomMemory[i] != prospect.Absent || n.BatchCPU[i] != prospect.Absent {
					t.Fatalf("%s, step %d: room %d and %d MiB, could be batch %d without kube-state-metrics", name, i, n.RoomCPU[i], n.RoomMemory[i], n.BatchCPU[i])
				}
			default:
				known++
				counts := f.jobs[0].cpu(h) + f.jobs[2].cpu(h)
				if name == "by request" {
					counts = max(f.jobs[0].cpu(h), 2000) + f.jobs[2].cpu(h)
				}
				if room := max(4800-systemCPU("n1", h)-counts, 0); n.RoomCPU[i] != room || n.BatchCPU[i] != f.jobs[2].cpu(h) {
					t.Fatalf("%s, step %d: room %d, could be batch %d; made were %d and %d", name, i, n.RoomCPU[i], n.BatchCPU[i], room, f.jobs[2].cpu(h))
				}
			}
		}
		if len(n.Hurt) != 1 || n.Hurt[0].Service != "shop/web" || n.Hurt[0].Minutes < known*5 || n.Hurt[0].Minutes > known*5+10 {
			t.Errorf("%s: %d minutes are known, and these were held back: %v", name, known*5, n.Hurt)
		}
	}
}

// TestANodeIsFoundByItsAddress has no root cgroup, as most installations, and
// node_exporter, which knows addresses alone. One address moves to another node at noon.
func TestANodeIsFoundByItsAddress(t *testing.T) {
	t.Parallel()
	end := now.Unix() / day * day
	from := end - day
	noon := from + 12*hour
	f := &fleet{jobs: []job{
		{node: "m1", namespace: "shop", pod: "a", container: "app", id: "/a", from: from, to: noon, askedCPU: 1},
		{node: "m2", namespace: "shop", pod: "b", container: "app", id: "/a", from: noon, to: end, askedCPU: 1},
		{node: "m3", namespace: "shop", pod: "c", container: "app", id: "/a", from: from, to: end, askedCPU: 1},
	}}
	at := func(ip4, ip6 string) func(h int64) string {
		return func(h int64) string {
			switch {
			case ip6 != "":
				return "m3"
			case h*hour < noon:
				return "m1"
			}
			return "m2"
		}
	}
	all := append(machines("m1", "10.0.0.1", from, noon), machines("m2", "10.0.0.1", noon, end+1)...)
	all = append(all, machines("m1", "10.0.0.9", noon, end+1)...)
	all = append(all, machines("m3", "fd00::1", from, end+1)...)
	for instance, of := range map[string]func(int64) string{"10.0.0.1:9100": at("10.0.0.1", ""), "[fd00::1]:9100": at("", "fd00::1")} {
		half := func(h int64) int64 { return f.usedCPU(of(h), h) * 500 } // of each CPU, in millionths
		for _, cpu := range []string{"0", "1"} {
			sum := int64(0)
			all = append(all,
				made{fmt.Sprintf(`node_cpu_seconds_total{instance=%q,cpu=%q,mode="user"}`, instance, cpu), true, func(at int64) (float64, bool) {
					if at > from {
						sum += half((at-scrape)/hour) * scrape
					}
					return float64(sum) / 1e6, true
				}},
				constant(fmt.Sprintf(`node_cpu_seconds_total{instance=%q,cpu=%q,mode="idle"}`, instance, cpu), true, from, end+1, 7))
		}
		all = append(all, constant(fmt.Sprintf("node_memory_MemTotal_bytes{instance=%q}", instance), true, from, end+1, 16<<30),
			constant(fmt.Sprintf("node_memory_Inactive_file_bytes{instance=%q}", instance), true, from, end+1, 3<<30),
			made{fmt.Sprintf("node_memory_MemFree_bytes{instance=%q}", instance), true, func(at int64) (float64, bool) {
				return float64(13<<30 - f.usedMemory(of(at/hour), at/hour)<<10), true
			}})
	}
	for _, name := range []string{"m1", "m2", "m3"} {
		all = append(all, f.cadvisor("node", name, from, end, false, false)...)
	}
	p, nodes := readReal(t, optionsOf(t, startPrometheus(t, from, end, all), 1, rules()))
	if s := p.Sources; s.CPU != past.NodeExporter || s.Memory != past.NodeExporter || s.Exporter != "" || s.Owners || s.Held {
		t.Fatalf("%+v", s)
	}
	for name, n := range nodes {
		for i := range n.RoomCPU {
			begin := from + int64(i)*300
			h := begin / hour
			switch {
			case begin >= noon-300 && begin < noon+600, (begin+300)%hour == 0:
				continue // the address has two nodes, or the memory is that of two hours
			case name == "m1" && begin >= noon, name == "m2" && begin < noon:
				if n.UsedCPU[i] != prospect.Absent || n.RoomMemory[i] != prospect.Absent {
					t.Fatalf("%s, step %d: it uses %d while it is not there", name, i, n.UsedCPU[i])
				}
				continue
			}
			used, memory := f.usedCPU(name, h), f.usedMemory(name, h)
			if n.UsedCPU[i] != used || n.RoomCPU[i] != max(4800-used, 0) || n.UsedMemory[i] != memory>>10 || n.BatchCPU != nil {
				t.Fatalf("%s, step %d: used %d and %d MiB, room %d; made were %d and %d MiB", name, i, n.UsedCPU[i], n.UsedMemory[i], n.RoomCPU[i], used, memory>>10)
			}
		}
	}
	if len(nodes) != 3 {
		t.Errorf("%d nodes", len(nodes))
	}
}

// TestAServerWithoutKubeStateMetrics has cAdvisor alone, under a label of its own: with
// containers, with pods alone, and without the root cgroup.
func TestAServerWithoutKubeStateMetrics(t *testing.T) {
	t.Parallel()
	end := now.Unix() / day * day
	from := end - day
	jobs := []job{{node: "k1", namespace: "shop", pod: "a", container: "app", id: "/a", from: from, to: end}, {node: "k2", namespace: "shop", pod: "b", container: "app", id: "/a", from: from, to: end}, {node: "k0", namespace: "shop", pod: "c", container: "app", id: "/a", from: from, to: end - 12*hour}}
	for name, c := range map[string]struct {
		pods bool
		root past.Source
	}{"containers": {false, past.CAdvisor}, "pods": {true, past.CAdvisor}, "no root": {false, past.PodsOnly}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fleet{jobs: jobs}
			var all []made
			for node, to := range map[string]int64{"k1": end, "k2": end, "k0": end - 12*hour} {
				for _, s := range f.cadvisor("instance", node, from, to, c.root == past.CAdvisor, false) {
					if !c.pods || !strings.Contains(s.name, `container="app"`) && !strings.Contains(s.name, `container="POD"`) {
						all = append(all, s)
					}
				}
				all = append(all, constant(fmt.Sprintf("machine_cpu_cores{instance=%q}", node), false, from, to+1, 8), constant(fmt.Sprintf("machine_memory_bytes{instance=%q}", node), false, from, to+1, 16<<30))
			}
			rules := rules()
			rules.ReservedCPU = 1000 // more than the node itself uses
			p, nodes := readReal(t, optionsOf(t, startPrometheus(t, from, end, all), 1, rules))
			if s := p.Sources; s.Label != "instance" || s.Containers == c.pods || s.CPU != c.root || s.Memory != c.root || len(nodes) != 2 || p.Gone != 1 {
				t.Fatalf("%d nodes, %+v", len(nodes), s)
			}
			for name, n := range nodes {
				for i := range n.RoomCPU {
					h := (from + int64(i)*300) / hour
					pods := f.sum(name, func(j *job) int64 { return j.cpu(h) })
					used := pods
					if c.root == past.CAdvisor {
						used = f.usedCPU(name, h)
					}
					if n.UsedCPU[i] != used || n.RoomCPU[i] != max(4800-1000-pods, 0) || n.CPU != 8000 {
						t.Fatalf("%s, step %d: used %d, room %d; made were %d, of it %d by pods", name, i, n.UsedCPU[i], n.RoomCPU[i], used, pods)
					}
				}
			}
		})
	}
}

// TestOneClusterOfSeveralIsRead has nodes and pods with the same names in two clusters.
func TestOneClusterOfSeveralIsRead(t *testing.T) {
	t.Parallel()
	end := now.Unix() / day * day
	from := end - day
	var all []made
	fleets := map[string]*fleet{}
	for _, cluster := range []string{"prod", "test"} {
		f := &fleet{jobs: []job{{node: "c1", namespace: "shop", pod: "a", container: cluster, id: "/a", from: from, to: end, askedCPU: 100, could: cluster == "test"}}}
		fleets[cluster] = f
		series := append(machines("c1", "10.0.0.1", from, end+1), f.cadvisor("node", "c1", from, end, true, true)...)
		series = append(series, f.states(func(j *job) (string, string) {
			if j.could {
				return "Job", "a"
			}
			return "StatefulSet", "a"
		})...)
		for _, s := range series {
			s.name = strings.Replace(s.name, "{", fmt.Sprintf("{cluster=%q,", cluster), 1)
			all = append(all, s)
		}
	}
	url := startPrometheus(t, from, end, all)
	o := optionsOf(t, url, 1, rules())
	if _, err := Read(t.Context(), o); !errors.Is(err, ErrClusters) {
		t.Errorf("both clusters are read as one: %v", err)
	}
	var bare []made // without kube-state-metrics
	for _, s := range all {
		if !strings.HasPrefix(s.name, "kube_") {
			bare = append(bare, s)
		}
	}
	if _, err := Read(t.Context(), optionsOf(t, startPrometheus(t, from, end, bare), 1, rules())); !errors.Is(err, ErrClusters) {
		t.Errorf("both clusters are read as one without kube-state-metrics: %v", err)
	}
	for cluster, f := range fleets {
		o := optionsOf(t, url, 1, rules())
		o.Match = map[string]string{"cluster": cluster}
		_, nodes := readReal(t, o)
		n := nodes["c1"]
		if len(nodes) != 1 || len(n.RoomCPU) != 288 {
			t.Fatalf("%d nodes", len(nodes))
		}
		for i := range n.RoomCPU {
			h := (from + int64(i)*300) / hour
			could := int64(0)
			if cluster == "test" {
				could = f.jobs[0].cpu(h)
			}
			if used := f.usedCPU("c1", h); n.UsedCPU[i] != used || n.RoomCPU[i] != max(4800-used, 0) || n.BatchCPU[i] != could {
				t.Fatalf("%s, step %d: used %d, room %d, could be batch %d; made were %d and %d", cluster, i, n.UsedCPU[i], n.RoomCPU[i], n.BatchCPU[i], used, could)
			}
		}
	}
}

// TestAWeekOfManyNodes reads a week of as many nodes as TENON_TEST_PAST_NODES says, and
// prints how long it took. Each node has four pods, and a sample every two minutes.
func TestAWeekOfManyNodes(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("TENON_TEST_PAST_NODES"))
	if err != nil {
		t.Skip("TENON_TEST_PAST_NODES has no number of nodes")
	}
	const days = 7
	end := now.Unix() / day * day
	from := end - days*day
	f := &fleet{}
	var all []made
	for i := range n {
		name := fmt.Sprintf("node-%04d", i)
		g := &fleet{}
		for k := range 4 {
			g.jobs = append(g.jobs, job{node: name, namespace: "shop", pod: fmt.Sprintf("web-%d-%d", i, k), container: "app", id: "/a", from: from, to: end})
		}
		for _, s := range g.cadvisor("node", name, from, end, true, false) {
			if !strings.Contains(s.name, `container="POD"`) && !strings.Contains(s.name, `container=""`) {
				all = append(all, s)
			}
		}
		for _, j := range g.jobs {
			all = append(all, constant(fmt.Sprintf(`kube_pod_owner{namespace="shop",pod=%q,owner_kind="ReplicaSet",owner_name="web"}`, j.pod), false, from, end+1, 1))
		}
		for _, m := range machines(name, fmt.Sprintf("10.0.%d.%d", i/250, i%250), from, end+1)[:3] {
			m.twice = false
			all = append(all, m)
		}
		f.jobs = append(f.jobs, g.jobs...)
	}
	begun := time.Now()
	url := startPrometheus(t, from, end, all)
	t.Logf("the week was made in %v", time.Since(begun).Round(time.Second))
	begun = time.Now()
	var last Progress
	p, err := Read(context.Background(), Options{Server: promapi.Server{URL: url}, Choice: Choice{Rules: rules(), Days: days, Step: 5}, Dir: filepath.Join(t.TempDir(), "past"), Now: now, Report: func(p Progress) { last = p }})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	begun = time.Now()
	steps := 0
	for n, err := range p.Nodes() {
		if err != nil {
			t.Fatal(err)
		}
		for _, room := range n.RoomCPU {
			if room >= 0 {
				steps++
			}
		}
	}
	if steps != n*days*288 {
		t.Errorf("%d steps have room", steps)
	}
	t.Logf("%d nodes, %d days: read in %v with %d queries, made into nodes in %v", n, days, took.Round(100*time.Millisecond), last.Queries, time.Since(begun).Round(10*time.Millisecond))
}
