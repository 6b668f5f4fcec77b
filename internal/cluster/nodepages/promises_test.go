package nodepages

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/api/v1alpha1"
)

// TestPromisesAreShownWithHowOftenTheyWereKept also checks that docs/operate.md
// shows the table.
func TestPromisesAreShownWithHowOftenTheyWereKept(t *testing.T) {
	n := scene(t)[1]
	if text := Explain(n, noon); strings.Contains(text, "Promises") {
		t.Errorf("an agent that promises nothing:\n%s", text)
	}
	amount := func(hours int32, amount string, judged, kept int64, better bool) v1alpha1.PromisedAmount {
		q := resource.MustParse(amount)
		return v1alpha1.PromisedAmount{Hours: hours, Percent: 90, Amount: &q, Judged: judged, Kept: kept, Better: better}
	}
	n.Report.Status.Promises = &v1alpha1.Promises{
		CPU: []v1alpha1.PromisedAmount{
			amount(1, "6900m", 87, 79, true), amount(6, "5200m", 58, 52, true), {Hours: 24, Percent: 90, Lacking: 8},
		},
		Memory: []v1alpha1.PromisedAmount{
			amount(1, "8Gi", 87, 83, true), amount(6, "7800Mi", 58, 53, false), {Hours: 24, Percent: 90},
		},
	}
	const want = `Promises from the last full hour (UTC) on: how much of the batch resources lasts. KEPT: how many came true so far
  FOR   WITH  CPU                          KEPT      MEMORY   KEPT
  1 h   90%   6900m                        79 of 87  8192Mi   83 of 87
  6 h   90%   5200m                        52 of 58  7800Mi   53 of 58
  24 h  90%   not yet (8 windows lacking)  -         unknown  -
  not shown to be better than a percentile of the past: memory for 6 h with 90%
`
	if text := Explain(n, noon); !strings.Contains(text, want) {
		t.Errorf("the page does not have\n%s\nbut\n%s", want, text)
	}
	checkShown(t, want)
}
