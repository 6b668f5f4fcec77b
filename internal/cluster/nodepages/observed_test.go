package nodepages

import (
	"strings"
	"testing"

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
