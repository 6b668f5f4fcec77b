package prospect

import (
	"reflect"
	"testing"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/unit"
)

// TestANodeThatKeepsTooFewPromisesIsNamed has nodes of which one kept clearly fewer, one a
// few less, as by chance, and one that has too few promises to say.
func TestANodeThatKeepsTooFewPromisesIsNamed(t *testing.T) {
	of := func(name string, judged, cpu, memory int64) Outlook {
		return Outlook{Name: name, Promises: []promise.Promise{{
			Hours: 6, Percent: 90, CPU: promise.Amount[unit.MilliCPU]{Judged: judged, Kept: cpu}, Memory: promise.Amount[unit.Bytes]{Judged: judged, Kept: memory},
		}}}
	}
	got := Shortfalls([]Outlook{of("good", 1000, 905, 910), of("chance", 1000, 880, 900), of("new", 12, 6, 12), of("bad", 1000, 700, 890), of("worse", 1000, 900, 500), of("none", 0, 0, 0)})
	want := []Shortfall{{"worse", ResourceMemory, 6, 90, 1000, 500}, {"bad", ResourceCPU, 6, 90, 1000, 700}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
