package journal_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestEnabledControllersAreRemembered records controllers that Tenon enables.
// The entries must survive a compaction, and end one by one.
func TestEnabledControllersAreRemembered(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, me)
	of := func(p node.CgroupPath, name string) journal.ChildController {
		return journal.ChildController{Cgroup: p, Controller: name}
	}
	do(t, journal.RecordEnabled(j, of("", "io"), journal.Enabling{Inode: 1, Children: []uint64{5, 6}}),
		journal.RecordEnabled(j, of("", "memory"), journal.Enabling{Inode: 1}),
		journal.RecordEnabled(j, of("user/a", "io"), journal.Enabling{Inode: 7, Children: []uint64{8}}),
		journal.ForgetEnabled(j, of("", "memory")), journal.ForgetEnabled(j, of("", "pids")))
	want := map[journal.ChildController]journal.Enabling{
		of("", "io"):       {Inode: 1, Children: []uint64{5, 6}, By: me},
		of("user/a", "io"): {Inode: 7, Children: []uint64{8}, By: me},
	}
	check := func(when string) {
		t.Helper()
		s := state(t, open(t, dir, lab))
		if d := cmp.Diff(want, s.Enabled); d != "" || s.Empty() {
			t.Errorf("%s: %s", when, d)
		}
		if got := fmt.Sprint(journal.DeepestFirst(s.Enabled)); got != "[{user/a io} { io}]" {
			t.Errorf("%s: the order is %s", when, got)
		}
	}
	check("written")
	for i := range 1500 {
		v := node.Limit(unit.MilliCPU(100 + i))
		do(t, j.Intend(quota, 2, node.Limit(2000), v), j.RecordValue(quota, v))
	}
	check("compacted")
	do(t, j.Forget(quota), journal.ForgetEnabled(j, of("", "io")), journal.ForgetEnabled(j, of("user/a", "io")))
	if s := state(t, j); !s.Empty() {
		t.Errorf("left: %v", s)
	}
}
