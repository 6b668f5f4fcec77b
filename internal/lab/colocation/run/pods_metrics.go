package run

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/lab/testbed"
)

// A nodeUsage is the amount of CPU that a node used in one window of the
// metrics API.
type nodeUsage struct {
	from, to time.Time
	cpus     float64
}

// usageOf reads the latest window from the metrics API. kubectl top prints it,
// too.
func (b *pods) usageOf(ctx context.Context) (u nodeUsage, ok bool) {
	var m struct {
		Timestamp time.Time
		Window    string
		Usage     struct{ CPU string }
	}
	if err := b.space.Raw(ctx, &m, "/apis/metrics.k8s.io/v1beta1/nodes/"+b.node.Name); err != nil {
		return u, false // the metrics API is optional in a cluster
	}
	window, err := time.ParseDuration(m.Window)
	// The timestamp is the end of the window (k8s.io/metrics, NodeMetrics).
	return nodeUsage{from: m.Timestamp.Add(-window), to: m.Timestamp, cpus: cpusOf(m.Usage.CPU)}, err == nil && window > 0
}

// metricsPatience is the time after a run for which nodeMetrics waits until the
// metrics API has a window of that run. The kubelet measures every 10 to 15
// seconds, and the metrics server queries the kubelet about as often.
const metricsPatience = 45 * time.Second

// nodeMetrics looks for a window of the metrics API that lies within the run.
// It returns how many CPUs the node used in that window, or 0 if there is none.
// Windows follow each other without gaps, and appear late. A run that is at
// least two windows long contains a whole window, and nodeMetrics waits for
// that window. For a shorter run it does not wait.
func (b *pods) nodeMetrics(ctx context.Context, from, to time.Time, patience time.Duration) float64 {
	for deadline := time.Now().Add(patience); ; {
		u, ok := b.usageOf(ctx)
		switch {
		case !ok:
			return 0
		case !u.from.Before(from) && !u.to.After(to):
			return u.cpus
		case u.to.After(to), to.Sub(from) < 2*u.to.Sub(u.from), time.Now().After(deadline):
			return 0
		}
		if testbed.Pause(ctx, 2*time.Second) != nil {
			return 0
		}
	}
}

// cpusOf parses an amount of CPU as the metrics API writes it, such as 1250m or
// 83412345n.
func cpusOf(text string) float64 {
	number := strings.TrimRight(text, "num")
	cpus, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return cpus * map[string]float64{"": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}[text[len(number):]]
}

// A nodeCounter has the readings of the counter from which the metrics server computes
// the CPU use of a node: node_cpu_usage_seconds_total in /metrics/resource of the
// kubelet. The kubelet reads it every 10 to 15 seconds, and says when.
type nodeCounter struct {
	mu       sync.Mutex
	readings []nodeReading
}

type nodeReading struct {
	at      time.Time
	seconds float64 // of CPU time, of all CPUs
}

// counterPeriod is the time between two questions to the kubelet.
const counterPeriod = 4 * time.Second

// watch reads the counter until ctx ends. A user who may not ask the kubelet gets no
// reading.
func (n *nodeCounter) watch(ctx context.Context, b *pods) {
	for testbed.Pause(ctx, counterPeriod) == nil {
		out, err := b.space.Do(ctx, "", "get", "--raw", "/api/v1/nodes/"+b.node.Name+"/proxy/metrics/resource")
		if err != nil {
			return
		}
		if r, ok := nodeReadingOf(out); ok {
			n.mu.Lock()
			n.readings = append(n.readings, r)
			n.mu.Unlock()
		}
	}
}

// nodeReadingOf finds the counter in the text of /metrics/resource. The third word of
// its line is the time in milliseconds.
func nodeReadingOf(text []byte) (r nodeReading, ok bool) {
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if len(f) != 3 || f[0] != "node_cpu_usage_seconds_total" {
			continue
		}
		seconds, err1 := strconv.ParseFloat(f[1], 64)
		at, err2 := strconv.ParseInt(f[2], 10, 64)
		return nodeReading{time.UnixMilli(at), seconds}, err1 == nil && err2 == nil
	}
	return r, false
}

// between returns how many CPUs the node used between the first and the last reading of
// its kubelet in a run, or 0 if these are less than half of the run apart.
func (n *nodeCounter) between(from, to time.Time) float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var in []nodeReading
	for _, r := range n.readings {
		if !r.at.Before(from) && !r.at.After(to) {
			in = append(in, r)
		}
	}
	if len(in) < 2 {
		return 0
	}
	first, last := in[0], in[len(in)-1]
	if last.at.Sub(first.at) < to.Sub(from)/2 {
		return 0
	}
	return (last.seconds - first.seconds) / last.at.Sub(first.at).Seconds()
}
