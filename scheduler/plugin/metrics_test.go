package plugin

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

func TestTheMetricsSayWhatIsOwnedStrandedAndRefused(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4)) // two caches of 8 CPUs
	moved := b.run(pinned("a", 5, 100), "n")
	b.run(pinned("b", 5, 100), "n")
	if _, why := b.tryNode(pinned("c", 9, 100), "n"); why == "" {
		t.Fatal("9 of 6 CPUs are free")
	}
	other := unit.CPUSet{} // the node gives the first pod other CPUs
	for c := range b.keeper.view("n").Open().All() {
		if other.Len() < 5 {
			other = other.With(c)
		}
	}
	b.keeper.reportChanged(machine("n", 2, 2, 4, map[place.UID]cpus.Allocation{place.UID(moved.UID): {Policy: cpus.Exclusive, CPUs: other}}))
	keepers.Lock()
	before := keepers.of
	keepers.of = map[informers.SharedInformerFactory]*keeper{b.handle.factory: b.keeper}
	keepers.Unlock()
	defer func() {
		keepers.Lock()
		keepers.of = before
		keepers.Unlock()
	}()
	want := `
# HELP tenon_scheduler_cpus [ALPHA] CPUs of the nodes that report them: own, held by one pod; reserved, for no pod; or open, all others
# TYPE tenon_scheduler_cpus gauge
tenon_scheduler_cpus{state="open"} 6
tenon_scheduler_cpus{state="own"} 10
tenon_scheduler_cpus{state="reserved"} 0
# HELP tenon_scheduler_moved_pods_total [ALPHA] Pods with other CPUs on their node than were chosen for them
# TYPE tenon_scheduler_moved_pods_total counter
tenon_scheduler_moved_pods_total 1
# HELP tenon_scheduler_waiting_pods [ALPHA] Pods that wait for CPUs
# TYPE tenon_scheduler_waiting_pods gauge
tenon_scheduler_waiting_pods 1
# HELP tenon_scheduler_refused_attempts_total [ALPHA] Attempts to schedule a pod in which a node had no CPUs for it, by the reason of the first such node
# TYPE tenon_scheduler_refused_attempts_total counter
tenon_scheduler_refused_attempts_total{reason="no room for own CPUs: too few are open"} 1
`
	if err := testutil.CustomCollectAndCompare(&collector{}, strings.NewReader(want),
		"tenon_scheduler_cpus", "tenon_scheduler_moved_pods_total", "tenon_scheduler_waiting_pods", "tenon_scheduler_refused_attempts_total"); err != nil {
		t.Error(err)
	}
}

// TestNoMetricHasANameOfTenond checks that docs/scheduler.md lists exactly the
// metrics of the plugin, and that tenond has none of these names. Former names
// may be the same.
func TestNoMetricHasANameOfTenond(t *testing.T) {
	rows := func(path string) (all, current []string) {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range regexp.MustCompile("(?m)^\\| `(tenon_[a-z0-9_]+)` .*$").FindAllStringSubmatch(string(page), -1) {
			all = append(all, row[1])
			if !strings.Contains(row[0], "the former name of") {
				current = append(current, row[1])
			}
		}
		slices.Sort(all)
		return all, current
	}
	described := make(chan *metrics.Desc, 100)
	(&collector{}).DescribeWithStability(described)
	close(described)
	var has []string
	for d := range described {
		has = append(has, regexp.MustCompile(`tenon_[a-z0-9_]+`).FindString(d.String()))
	}
	slices.Sort(has)
	listed, ours := rows("../../docs/scheduler.md")
	if !slices.Equal(listed, has) {
		t.Errorf("docs/scheduler.md lists\n%v\nthe code has\n%v", listed, has)
	}
	_, theirs := rows("../../docs/metrics.md")
	for _, name := range ours {
		if slices.Contains(theirs, name) {
			t.Errorf("tenond has a metric %s, too", name)
		}
	}
	if len(theirs) < 50 {
		t.Errorf("docs/metrics.md lists %v", theirs)
	}
}
