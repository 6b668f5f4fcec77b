package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
)

// BenchmarkThousandNodes runs the program against a real API server with 1000
// nodes. Each node has ten pods, which the manager does not read, and reports
// ten times. All nodes together send forty reports per second. The benchmark
// measures the memory and CPU time of the manager. It also measures the time
// from just before a report is written until a watch shows the new amounts. It
// runs only with TENON_TEST_LONG=1. TENON_SCALE_NODES, TENON_SCALE_PODS (per
// node) and TENON_SCALE_RATE change the number of nodes, pods and reports per
// second.
func BenchmarkThousandNodes(b *testing.B) {
	if os.Getenv("TENON_TEST_LONG") != "1" {
		b.Skip("takes minutes: set TENON_TEST_LONG=1")
	}
	nodes, pods, rounds, perSecond := number("TENON_SCALE_NODES", 1000), number("TENON_SCALE_PODS", 10), 10, number("TENON_SCALE_RATE", 40)
	s := newScene(b)
	p := s.build().run(b, s.config)
	before, beforeCPU := p.resourceUse(b)
	b.Logf("alone: %s, %.2f s of CPU", before, beforeCPU.Seconds())
	forEach(16, nodes, func(i int) { s.bigNode(fmt.Sprintf("scale-%04d", i)) })
	forEach(16, nodes*pods, func(i int) {
		pod := s.pod("BE", listOf("kubernetes.io/batch-cpu", "500", "kubernetes.io/batch-memory", "1Gi"))
		pod.Spec.NodeName = fmt.Sprintf("scale-%04d", i%nodes)
		if err := s.client.Create(s.ctx, pod); err != nil {
			b.Error(err)
		}
	})
	m := s.watch()
	_, startCPU := p.resourceUse(b)
	begun := time.Now()
	left := 9000.0
	for round := range rounds {
		left *= .85 // a large fall each time, which the manager writes at once
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		forEach(32, nodes, func(i int) {
			<-tick.C
			name := fmt.Sprintf("scale-%04d", i)
			m.expect(name, int64(left), time.Now())
			s.apply(name, round, batchOf(9200-int64(left), 4))
		})
		tick.Stop()
	}
	delays := m.wait(b, nodes*rounds, time.Minute)
	took := time.Since(begun)
	after, endCPU := p.resourceUse(b)
	slices.Sort(delays)
	at := func(p float64) time.Duration { return delays[min(len(delays)-1, int(p*float64(len(delays))))] }
	b.Logf("%d reports in %v: report to node p50 %v, p99 %v, most %v", len(delays), took.Round(time.Second), at(.5), at(.99), delays[len(delays)-1])
	b.Logf("the manager: %s, %.0f%% of a CPU", after, 100*(endCPU-startCPU).Seconds()/took.Seconds())
	b.Logf("%s", p.scrape(b, "tenon_manager_node_writes_total"))
	b.Logf("%s", p.scrape(b, "tenon_manager_report_delay_seconds"))
	b.ReportMetric(at(.5).Seconds(), "p50-s")
	b.ReportMetric(at(.99).Seconds(), "p99-s")
	b.ReportMetric(100*(endCPU-startCPU).Seconds()/took.Seconds(), "cpu-percent")
	if at(.99) > 2*time.Second {
		b.Errorf("p99 is %v, want at most 2 s", at(.99))
	}
}

// forEach calls f for the numbers from 0 to n-1 in several goroutines.
func forEach(workers, n int, f func(int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// bigNode creates a node with 50 images. The object is as large as the nodes of
// real clusters.
func (s *scene) bigNode(name string) {
	n := machineOf(16, 64)
	n.Name = name
	n.Labels = map[string]string{"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z1", "node.kubernetes.io/instance-type": "large"}
	status := n.Status
	for i := range 50 {
		status.Images = append(status.Images, corev1.ContainerImage{Names: []string{
			fmt.Sprintf("registry.example.com/team/application-%d@sha256:%064d", i, i), fmt.Sprintf("registry.example.com/team/application-%d:v1.2.3", i),
		}, SizeBytes: 1 << 28})
	}
	if err := s.client.Create(s.ctx, n); err != nil {
		s.t.Error(err)
		return
	}
	n.Status = status
	if err := s.client.Status().Update(s.ctx, n); err != nil {
		s.t.Error(err)
	}
	r := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.client.Create(s.ctx, r); err != nil {
		s.t.Error(err)
	}
}

// apply writes a report in one request, like an agent.
func (s *scene) apply(name string, round int, batch *v1alpha1.Batch) {
	status := v1alpha1.NodeReportStatus{Reported: metav1.NowMicro(), Run: "scale", Sequence: int64(round), Agent: "test", Batch: *batch}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeReport", "metadata": map[string]any{"name": name},
		"status": map[string]any{"reported": status.Reported, "run": status.Run, "sequence": status.Sequence, "agent": status.Agent, "batch": status.Batch},
	})
	if err == nil {
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		err = s.client.Status().Patch(s.ctx, o, client.RawPatch(types.ApplyPatchType, patch), client.FieldOwner("tenond"), client.ForceOwnership)
	}
	if err != nil {
		s.t.Error(err)
	}
}

// A meter measures how long each report takes to change its node.
type meter struct {
	mu      sync.Mutex
	waiting map[string]map[int64]time.Time
	delays  []time.Duration
}

func (m *meter) expect(name string, milli int64, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[name] == nil {
		m.waiting[name] = map[int64]time.Time{}
	}
	m.waiting[name][milli] = at
}

// watch starts a meter that watches all nodes.
func (s *scene) watch() *meter {
	m := &meter{waiting: map[string]map[int64]time.Time{}}
	w, err := s.client.Watch(s.ctx, &corev1.NodeList{})
	s.must(err)
	go func() {
		for e := range w.ResultChan() {
			n, is := e.Object.(*corev1.Node)
			if !is {
				continue
			}
			milli, has := factsOf(n).Present[cpu].Value()
			m.mu.Lock()
			if at, expected := m.waiting[n.Name][milli]; has && expected {
				m.delays = append(m.delays, time.Since(at))
				delete(m.waiting[n.Name], milli)
			}
			m.mu.Unlock()
		}
	}()
	s.t.Cleanup(w.Stop)
	return m
}

// wait waits until n nodes have changed, and returns the n measured times.
func (m *meter) wait(b testing.TB, n int, within time.Duration) []time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		m.mu.Lock()
		got := slices.Clone(m.delays)
		m.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-ctx.Done():
			b.Errorf("of %d reports %d had an effect", n, len(got))
			return got
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// number reads an environment variable, or returns the default.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return usual
}
