package lab

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// A nodeUsage is the CPU use of a node over a time, as the metrics API has it.
type nodeUsage struct {
	from, to time.Time
	cpus     float64
}

// usageOf asks the metrics API, as kubectl top does, for the last window that
// it knows.
func (b *clusterEnvironment) usageOf(ctx context.Context) (u nodeUsage, ok bool) {
	var m struct {
		Timestamp time.Time
		Window    string
		Usage     struct{ CPU string }
	}
	if err := b.kubectl.raw(ctx, &m, "/apis/metrics.k8s.io/v1beta1/nodes/"+b.node.name); err != nil {
		return u, false // a cluster need not have it
	}
	window, err := time.ParseDuration(m.Window)
	// The timestamp is the window's end: k8s.io/metrics, NodeMetrics.
	return nodeUsage{from: m.Timestamp.Add(-window), to: m.Timestamp, cpus: cpusOf(m.Usage.CPU)}, err == nil && window > 0
}

// metricsPatience is how long after a run its window may appear in the metrics
// API: the kubelet measures every ten to fifteen seconds, and the metrics
// server queries it as rarely.
const metricsPatience = 45 * time.Second

// nodeMetrics returns the CPU use of the node in a window of the metrics API
// that lies in the run, in CPUs; 0 if there is none. Windows follow one
// another, and appear late: a run of two windows contains one, and nodeMetrics
// waits for it.
func (b *clusterEnvironment) nodeMetrics(ctx context.Context, from, to time.Time, patience time.Duration) float64 {
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
		if pause(ctx, 2*time.Second) != nil {
			return 0
		}
	}
}

// cpusOf reads an amount of CPU as the metrics API writes it: 1250m, 83412345n.
func cpusOf(text string) float64 {
	number := strings.TrimRight(text, "num")
	cpus, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return cpus * map[string]float64{"": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}[text[len(number):]]
}
