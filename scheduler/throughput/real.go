package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/scheduler/inprocess"
)

// realNames are the schedulers that are compared on a real API server.
var realNames = []string{stock, stockAgain, withPlugin}

// A realCluster is a cluster on a real API server.
type realCluster struct {
	config *rest.Config
	client *kubernetes.Clientset
	made   contents
	pods   int // number of pods that were created for blocks
}

// enterReal starts an API server, and creates the cluster.
func enterReal(ctx context.Context, o options, nodes int) (measure, func(), error) {
	config, stop, err := startServer(ctx, o.binaries)
	if err != nil {
		return nil, nil, err
	}
	c := &realCluster{config: config, made: cluster(nodes, 2*nodes).withRefusing(o.refusing)}
	if c.client, err = kubernetes.NewForConfig(config); err == nil {
		err = c.create(ctx)
	}
	if err != nil {
		stop()
	}
	return c.block, stop, err
}

// create creates the nodes and their pods. The API server gives the pods other
// UIDs, so the reports get them, too.
func (c *realCluster) create(ctx context.Context) error {
	if err := inParallel(len(c.made.nodes), func(i int) error {
		_, err := c.client.CoreV1().Nodes().Create(ctx, &c.made.nodes[i], metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("create a node: %w", err)
	}
	var mu sync.Mutex
	uids := map[string]string{}
	if err := inParallel(len(c.made.pods), func(i int) error {
		p, err := c.client.CoreV1().Pods("default").Create(ctx, c.made.pods[i], metav1.CreateOptions{})
		if err == nil {
			mu.Lock()
			uids[p.Name] = string(p.UID)
			mu.Unlock()
		}
		return err
	}); err != nil {
		return fmt.Errorf("create a pod: %w", err)
	}
	for _, r := range c.made.reports {
		for i := range r.Status.CPUs.Pods {
			p := &r.Status.CPUs.Pods[i]
			p.UID = uids[p.UID]
		}
	}
	return nil
}

// block creates pods, starts a scheduler, and waits until all pods are bound. It
// then stops the scheduler and deletes the pods.
func (c *realCluster) block(ctx context.Context, o options, name string, share, _ int) (block, error) {
	asking := 0
	var names []string
	pods := make([]*corev1.Pod, o.pods)
	for i := range pods {
		asks := (i+1)*share/100 > i*share/100
		if asks {
			asking++
		}
		c.pods++
		pods[i] = podOf(fmt.Sprintf("load-%d", c.pods), asks)
		names = append(names, pods[i].Name)
	}
	if err := inParallel(len(pods), func(i int) error {
		_, err := c.client.CoreV1().Pods("default").Create(ctx, pods[i], metav1.CreateOptions{})
		return err
	}); err != nil {
		return block{}, fmt.Errorf("create a pod: %w", err)
	}
	b, err := c.schedule(ctx, name, len(pods))
	if err != nil {
		return b, err
	}
	all, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=load", ResourceVersion: "0"})
	if err != nil {
		return b, err
	}
	with := 0
	for i := range all.Items {
		if p := &all.Items[i]; slices.Contains(names, p.Name) && p.Annotations[kube.AnnotationCPUs] != "" {
			with++
		}
	}
	if name == withPlugin && with != asking {
		return b, fmt.Errorf("%d of %d pods have their CPUs", with, asking)
	}
	now := int64(0)
	if err := inParallel(len(names), func(i int) error {
		return c.client.CoreV1().Pods("default").Delete(ctx, names[i], metav1.DeleteOptions{GracePeriodSeconds: &now})
	}); err != nil {
		return b, fmt.Errorf("delete a pod: %w", err)
	}
	return b, nil
}

// schedule runs one scheduler until it has bound n pods.
func (c *realCluster) schedule(ctx context.Context, name string, n int) (block, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	m := &meter{want: n, done: make(chan struct{})}
	config := rest.CopyConfig(c.config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return through{m, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return block{}, err
	}
	var reports *inprocess.Reports
	if name == withPlugin {
		if reports, err = inprocess.Serve(ctx, c.made.reports); err != nil {
			return block{}, err
		}
	}
	if _, err := inprocess.Start(ctx, client, reports); err != nil {
		return block{}, err
	}
	select {
	case <-m.done:
		time.Sleep(100 * time.Millisecond) // until the scheduler has read the last answers
	case <-ctx.Done():
		return block{}, fmt.Errorf("%d of %d pods were bound: %w", m.bound(), n, ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return block{wall: m.last.Sub(m.first) / time.Duration(n), writes: float64(m.writes) / float64(n), binds: m.binds}, nil
}

// A meter counts the requests of a scheduler to the API server.
type meter struct {
	want int
	done chan struct{} // closed when want pods are bound

	mu          sync.Mutex
	first, last time.Time
	writes      int
	binds       []time.Duration
}

func (m *meter) bound() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.binds)
}

// through is the connection to the API server, with a meter.
type through struct {
	m    *meter
	next http.RoundTripper
}

// RoundTrip sends a request and waits for the answer.
func (t through) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	bind := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/binding")
	answer, err := t.next.RoundTrip(r)
	if r.Method == http.MethodGet {
		return answer, err
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.m.writes++
	if !bind || err != nil || answer.StatusCode != http.StatusCreated {
		return answer, err
	}
	if t.m.first.IsZero() {
		t.m.first = begun
	}
	t.m.last = time.Now()
	if t.m.binds = append(t.m.binds, t.m.last.Sub(begun)); len(t.m.binds) == t.m.want {
		close(t.m.done)
	}
	return answer, err
}

// inParallel calls f with 0 to n-1, sixteen calls at once.
func inParallel(n int, f func(int) error) error {
	var wg sync.WaitGroup
	faults := make([]error, 16)
	for w := range faults {
		wg.Go(func() {
			for i := w; i < n && faults[w] == nil; i += len(faults) {
				faults[w] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(faults...)
}

// realTable returns the blocks as CSV.
func realTable(all []block) string {
	var b strings.Builder
	b.WriteString("nodes,share,round,scheduler,wall_us,writes,bind_p50_us,bind_p99_us\n")
	for _, x := range all {
		fmt.Fprintf(&b, "%d,%d,%d,%s,%.1f,%.4f,%d,%d\n", x.nodes, x.share, x.round, x.arm, float64(x.wall.Nanoseconds())/1e3, x.writes,
			percentile(x.binds, 50).Microseconds(), percentile(x.binds, 99).Microseconds())
	}
	return b.String()
}

// realSummary compares the plugin with kube-scheduler by pods per second.
func realSummary(o options, all []block) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODES\tASKING\tSTOCK\tPLUGIN\tTHROUGHPUT\tOF EQUALS\tVERDICT\tWRITES STOCK\tPLUGIN\tBIND P50, P99 STOCK\tPLUGIN")
	for _, nodes := range o.nodes {
		for _, share := range slices.Sorted(slices.Values(o.shares)) {
			wall, writes, binds := map[string]stat.Sample{}, map[string]float64{}, map[string][]time.Duration{}
			for _, name := range realNames {
				wall[name] = stat.Sample{}
			}
			for _, x := range all {
				if x.nodes == nodes && x.share == share {
					wall[x.arm][x.round] = float64(x.wall.Nanoseconds()) / 1e3
					writes[x.arm] += x.writes / float64(o.rounds)
					binds[x.arm] = append(binds[x.arm], x.binds...)
				}
			}
			ratio, equal := stat.Ratio(wall[stock], wall[withPlugin], rule(o.rounds)), stat.Ratio(wall[stock], wall[stockAgain], rule(o.rounds))
			fmt.Fprintf(w, "%d\t%d %%\t%.0f/s\t%.0f/s\t%.3f (%.3f to %.3f)\t%.3f (%.3f to %.3f)\t%s\t%.2f\t%.2f\t%v, %v\t%v, %v\n", nodes, share,
				1e6/stat.Describe(wall[stock]).Value, 1e6/stat.Describe(wall[withPlugin]).Value, ratio.Value, ratio.Low, ratio.High,
				equal.Value, equal.Low, equal.High, verdict(ratio, equal), writes[stock], writes[withPlugin],
				percentile(binds[stock], 50), percentile(binds[stock], 99), percentile(binds[withPlugin], 50), percentile(binds[withPlugin], 99))
		}
	}
	w.Flush() // writes to memory and cannot fail
	fmt.Fprintf(&b, "Pods a second on a real API server, from the first request to bind a pod to the last answer; throughput is plugin / stock,\nwith the 95 %% interval over %d rounds of %d pods; writes: requests for each pod; bind: the time of a request to bind a pod.\n", o.rounds, o.pods)
	return b.String()
}

// percentile returns the time that p percent of the times do not exceed.
func percentile(times []time.Duration, p int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)].Round(10 * time.Microsecond)
}
