package tenant

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/node"
)

// TestAnObjectiveBelowTheLeastIsRefused creates and changes pods where the
// administrator has set the shortest objectives. A pod keeps what it had before.
func TestAnObjectiveBelowTheLeastIsRefused(t *testing.T) {
	n := Namespace{Name: "shop", Limits: config.PodObjectives{LeastRunQueueDelay: node.Some(2 * time.Millisecond), LeastRequestLatency: node.Some(10 * time.Millisecond)}}
	states := func(text string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Labels, p.Annotations = map[string]string{kube.LabelQOSClass: "LS"}, map[string]string{kube.AnnotationObjective: text}
		return p
	}
	const short, long = `{"runQueueDelay": "1ms"}`, `{"runQueueDelay": "2ms"}`
	const requests = `{"runQueueDelay": "1ms", "p50": "10ms", "p99": "9ms", "source": "metrics", "port": 80}`
	const refused = "metadata.annotations[tenon.sh/objective].runQueueDelay: 1ms: want 2ms or more (leastRunQueueDelay in objective-config)"
	for name, c := range map[string]struct {
		old, now *corev1.Pod
		want     []string
	}{
		"a new pod":          {nil, states(short), []string{refused}},
		"at the limit":       {nil, states(long), nil},
		"requests":           {nil, states(requests), []string{refused, "metadata.annotations[tenon.sh/objective].p99: 9ms: want 10ms or more (leastRequestLatency in objective-config)"}},
		"a change":           {states(long), states(short), []string{refused}},
		"what it had before": {states(short), states(short), nil},
		"none":               {nil, states("{}"), nil},
		"a fault":            {nil, states(`{"runQueueDelay": "1us"}`), nil}, // the check of the annotation refuses it
	} {
		var got []string
		for _, f := range n.Refuse(c.old, c.now) {
			got = append(got, f.String())
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if faults := (Namespace{Name: "shop"}).Refuse(nil, states(short)); len(faults) > 0 {
		t.Errorf("without a limit: %v", faults)
	}
}
