package nodepages

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
)

// TestAnObservedNodeOffersNothing moves what a node offers into its shadow. The page shows
// the same terms, and says that pods can have none of it.
func TestAnObservedNodeOffersNothing(t *testing.T) {
	n := scene(t)[1]
	report := n.Report.DeepCopy()
	n.Report = report
	s := &report.Status
	s.Shadow = &v1alpha1.Shadow{Batch: s.Batch, Steps: []v1alpha1.ShadowSteps{{Policy: "memory", Count: 3}, {Policy: "suppress", Count: 12}}}
	s.Batch, s.CPUs, s.Published, s.Trials, s.Isolation = v1alpha1.Batch{}, nil, nil, nil, ""
	text := Explain(n, noon)
	for _, want := range []string{
		"The agent only observes and writes nothing. Pods can have none of what it would offer:\n",
		"batch-cpu 7200m: what batch work may count on", "batch-memory 8192Mi:", "it would have made 15 writes: memory 3, suppress 12.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if top := Top([]Node{n}, noon); !strings.Contains(top, "observed") {
		t.Errorf("the table does not say that the node is observed:\n%s", top)
	}
}

// TestDoctorNamesTheNodesThatOnlyObserve gives nodes a shadow. That is no problem. Of a node
// whose agent is silent, it is not known any more.
func TestDoctorNamesTheNodesThatOnlyObserve(t *testing.T) {
	with := func(name string, shadow bool, reported time.Time) Node {
		n := scene(t)[1]
		n.Node, n.Report = n.DeepCopy(), n.Report.DeepCopy()
		n.Name, n.Report.Status.Conditions = name, nil
		n.Report.Status.Reported.Time = reported
		if shadow {
			n.Report.Status.Shadow = &v1alpha1.Shadow{}
		}
		return n
	}
	now := noon
	for _, c := range []struct {
		nodes []Node
		want  []string
		line  string
	}{
		{[]Node{with("a", false, now)}, nil, ""},
		{[]Node{with("b", true, now), with("a", true, now)}, []string{"a", "b"}, "  all nodes only observe, so nothing is written"},
		{[]Node{with("b", true, now), with("a", false, now)}, []string{"b"}, "  1 node only observes, so nothing is written"},
		{[]Node{with("b", true, now), with("a", false, now), with("c", true, now.Add(-time.Hour))}, []string{"b"}, "  1 node only observes, so nothing is written"},
	} {
		d := Doctor(c.nodes, nil, nil, now)
		text := d.Text()
		if !slices.Equal(d.Observing, c.want) || !strings.Contains(text, c.line) || strings.Contains(text, "observe") != (c.want != nil) {
			t.Errorf("%v observe, want %v and %q in\n%s", d.Observing, c.want, c.line, text)
		}
		if healthy := len(d.Silent) == 0; d.Healthy != healthy {
			t.Errorf("healthy %v with %v:\n%s", d.Healthy, d.Silent, text)
		}
	}
}
