package journal_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// TestNamesOfAnyBytesAreJournalled uses names of cgroups that are not UTF-8,
// which the kernel accepts. It also uses names that look like the quoted form
// of such names. Another process reads the file, before and after a compaction.
func TestNamesOfAnyBytesAreJournalled(t *testing.T) {
	names := []node.CgroupPath{"be/\xff\xfe", "be/caf\xe9", `be/"\xff"`, `a\x2db.slice`, "be/caf\u00e9", "be/\ufffd", "\xff"}
	dir := t.TempDir()
	j := open(t, dir, me)
	want := map[node.Knob]journal.Touch{}
	groups := map[node.CgroupPath]journal.Session{}
	for i, name := range names {
		k := node.Knob{Cgroup: name, File: node.FileCPUWeight}
		do(t, j.Intend(k, uint64(i+1), odd, idle), j.RecordValue(k, idle), j.RecordGroup(name+"/made"))
		want[k] = journal.Touch{Inode: uint64(i + 1), Before: odd, Written: idle, By: me}
		groups[name+"/made"] = me
	}
	// A cgroup is renamed. Neither name is UTF-8.
	from, to := node.Knob{Cgroup: names[0], File: node.FileCPUWeight}, node.Knob{Cgroup: node.CgroupPath("be" + strings.Repeat("/"+strings.Repeat("\xfd", 200), 10)), File: node.FileCPUWeight}
	do(t, j.Moved([]journal.Move{{From: from.Cgroup, To: to.Cgroup, Inode: 1}}))
	want[to] = want[from]
	delete(want, from)

	check := func(when string, s journal.State) {
		t.Helper()
		if d := cmp.Diff(want, s.Touches); d != "" || s.Torn != 0 || s.Damage != "" {
			t.Errorf("%s: %d torn lines, damage %q (-want +got):\n%s", when, s.Torn, s.Damage, d)
		}
		if d := cmp.Diff(groups, s.Groups); d != "" {
			t.Errorf("%s: groups (-want +got):\n%s", when, d)
		}
	}
	check("in the process that wrote", state(t, j))
	check("in another process", state(t, open(t, dir, lab)))
	for range 10 { // the lines are long, so that the file is compacted
		do(t, j.Intend(to, 1, idle, normal), j.RecordValue(to, normal), j.Intend(to, 1, normal, idle), j.RecordValue(to, idle))
	}
	check("after a compaction", state(t, open(t, dir, lab)))
}
