package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// fixtureHost returns a host whose cgroup tree is a directory of files that
// looks like a v2 hierarchy.
func fixtureHost(t *testing.T, groups ...string) (*Host, func(group, file, text string)) {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/mountinfo", "31 24 0:28 / "+root+"/v2 rw - cgroup2 cgroup2 rw")
	write("v2/cgroup.controllers", "cpu cpuset memory pids")
	for _, g := range groups {
		write("v2/"+g+"/pids.max", "max")
	}
	tree, err := cgroup.Detect(filepath.Join(root, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	return withKnobs(&Host{tree: tree.KeepOpen(512), workloads: map[node.WorkloadID]node.Workload{}}), func(group, file, text string) { write("v2/"+group+"/"+file, text) }
}

func tasks(group node.CgroupPath) node.Knob { return node.Knob{Cgroup: group, File: node.FilePIDs} }

func TestEveryKnobIsReadAgainWithinItsTime(t *testing.T) {
	for within, touched := range map[time.Duration][]node.Knob{
		reread.Changed:   {tasks("a"), tasks("b"), tasks("c")},
		reread.Unchanged: nil,
	} {
		readAgain(t, within, touched)
	}
}

func readAgain(t *testing.T, within time.Duration, touched []node.Knob) {
	t.Helper()
	groups := []node.CgroupPath{"a", "b", "c"}
	h, write := fixtureHost(t, "a", "b", "c")
	at := time.Unix(0, 0)
	h.cache.read(at, groups, slices.Clone(touched))
	for _, g := range groups {
		write(string(g), "pids.max", "7") // as if another component had written it
	}
	read := 0
	for range 10 { // turns
		at = at.Add(within / 10)
		seen := 0
		for k, v := range h.cache.read(at, groups, slices.Clone(touched)) {
			if k.File == node.FilePIDs && v == (node.Maximum{Max: 7}) {
				seen++
			}
		}
		if seen < read {
			t.Errorf("%d of the new values are seen, and %d were before", seen, read)
		}
		read = seen
	}
	if read != len(groups) {
		t.Errorf("after %v %d of %d new values are seen", within, read, len(groups))
	}
}

// TestOneForeignWriteShowsTheOthers writes many knobs at once, as systemctl
// daemon-reload does. When the first of them is read again, all are.
func TestOneForeignWriteShowsTheOthers(t *testing.T) {
	groups := []node.CgroupPath{"a", "b", "c", "d", "e"}
	h, write := fixtureHost(t, "a", "b", "c", "d", "e")
	touched := []node.Knob{tasks("a"), tasks("b"), tasks("c"), tasks("d"), tasks("e")}
	at := time.Unix(0, 0)
	h.cache.read(at, groups, touched)
	for _, g := range groups {
		write(string(g), "pids.max", "7")
	}
	seen := 0
	for _, k := range touched {
		if h.cache.read(at.Add(reread.Changed/5), groups, touched)[k] == (node.Maximum{Max: 7}) {
			seen++
		}
	}
	if seen != len(touched) {
		t.Errorf("after a fifth of the time %d of %d new values are seen", seen, len(touched))
	}
}

// TestAKnobThatIsWrittenAgainIsReadInEachSnapshot lets another component write one of
// many knobs each minute, as the kubelet does with the driver systemd.
func TestAKnobThatIsWrittenAgainIsReadInEachSnapshot(t *testing.T) {
	var groups []node.CgroupPath
	var names []string
	var touched []node.Knob
	for i := range 20 {
		name := string(rune('a' + i))
		names, groups, touched = append(names, name), append(groups, node.CgroupPath(name)), append(touched, tasks(node.CgroupPath(name)))
	}
	h, write := fixtureHost(t, names...)
	at := time.Unix(0, 0)
	seenAt := func() (ticks int) {
		for ticks = 1; ; ticks++ {
			at = at.Add(time.Second)
			if h.cache.read(at, groups, touched)[tasks("h")] == (node.Maximum{Max: 7}) {
				return ticks
			}
			if ticks > 6 {
				t.Fatal("the write of another component is not seen")
			}
		}
	}
	h.cache.read(at, groups, touched)
	for minute := range 4 {
		write("h", "pids.max", "7")
		if ticks := seenAt(); minute > 1 && ticks > 1 {
			t.Errorf("write %d is seen after %d ticks, want the next one", minute, ticks)
		}
		write("h", "pids.max", "max") // Tenon puts its value back
		h.cache.drop(tasks("h"))
		for range 50 {
			at = at.Add(time.Second)
			h.cache.read(at, groups, touched)
		}
	}
	// After a time without such writes, the knob is one of many again.
	for range 700 {
		at = at.Add(time.Second)
		h.cache.read(at, groups, touched)
	}
	if len(h.cache.contested) != 0 {
		t.Errorf("%v are still read in each snapshot", h.cache.contested)
	}
}

// TestAContestedKnobIsFoundBetweenSnapshots lets another component write a knob that it has
// written before, and one that it has not. The kernel tells of the first, without a
// snapshot. A write of Tenon is none of another component.
func TestAContestedKnobIsFoundBetweenSnapshots(t *testing.T) {
	h, write := fixtureHost(t, "a", "b")
	groups, touched := []node.CgroupPath{"a", "b"}, []node.Knob{tasks("a"), tasks("b")}
	told := make(chan node.Knob, 16)
	if err := h.FollowOverwritten(t.Context(), func(k node.Knob) { told <- k }, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(0, 0)
	read := func() {
		at = at.Add(reread.Changed)
		h.cache.read(at, groups, touched)
	}
	read()
	for range 2 {
		read()
		write("a", "pids.max", "7")
		read()
		h.cache.mu.Lock() // Tenon puts its value back; a slow machine must not come between
		write("a", "pids.max", "max")
		h.cache.forgetValue(tasks("a"))
		h.cache.mu.Unlock()
	}
	read()
	if len(told) > 0 {
		t.Errorf("%v is told before it is contested", <-told)
	}
	for range 3 {
		write("b", "pids.max", "7")
		write("a", "pids.max", "7")
		select {
		case k := <-told:
			if k != tasks("a") {
				t.Errorf("%v is told, want %v", k, tasks("a"))
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the write of another component is not told in 20 s")
		}
		read()
		h.cache.mu.Lock() // a write of Tenon, which the cache has at once
		write("a", "pids.max", "9")
		h.cache.set(tasks("a"), node.Maximum{Max: 9})
		h.cache.mu.Unlock()
		for end := time.After(10 * storedWithin); len(told) > 0; {
			select {
			case <-told: // several events of the first write
			case <-end:
			}
		}
	}
	time.Sleep(10 * storedWithin)
	if len(told) > 0 {
		t.Errorf("%v is told, and Tenon has written it", <-told)
	}
}

func TestASnapshotReadsNoKnownKnob(t *testing.T) {
	h, write := fixtureHost(t, "a")
	at := time.Unix(0, 0)
	h.cache.read(at, []node.CgroupPath{"a"}, nil)
	write("a", "pids.max", "7")
	now := h.cache.read(at.Add(time.Millisecond), []node.CgroupPath{"a"}, nil)
	if v := now[tasks("a")]; v != (node.Maximum{Max: node.NoMaximum}) {
		t.Errorf("after a millisecond pids.max is %v: it was read again", v)
	}
	h.Reread()
	now = h.cache.read(at.Add(2*time.Millisecond), []node.CgroupPath{"a"}, nil)
	if v := now[tasks("a")]; v != (node.Maximum{Max: 7}) {
		t.Errorf("after Reread pids.max is %v, want 7", v)
	}
}

func TestWhatWasWrittenIsKnownAtOnce(t *testing.T) {
	h, _ := fixtureHost(t, "a")
	at := time.Unix(0, 0)
	h.cache.read(at, []node.CgroupPath{"a"}, nil)
	h.cache.store(tasks("a"), node.Maximum{Max: 9}, nil)
	if v := h.cache.read(at, []node.CgroupPath{"a"}, nil)[tasks("a")]; v != (node.Maximum{Max: 9}) {
		t.Errorf("pids.max is %v, want the 9 that was written", v)
	}
	h.cache.store(tasks("a"), nil, os.ErrPermission)
	if v := h.cache.read(at, []node.CgroupPath{"a"}, nil)[tasks("a")]; v != (node.Maximum{Max: node.NoMaximum}) {
		t.Errorf("after a failed write pids.max is %v, want what is there", v)
	}
}

func TestAGroupMadeAnewIsReadAnew(t *testing.T) {
	h, write := fixtureHost(t, "a", "b")
	groups := []node.CgroupPath{"a", "b"}
	at := time.Unix(0, 0)
	h.cache.read(at, groups, nil)
	dir, err := h.tree.Dir("pids", "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	write("a", "pids.max", "5")
	h.cache.expire() // Sweep does the same
	if v := h.cache.read(at, groups, nil)[tasks("a")]; v != (node.Maximum{Max: 5}) {
		t.Errorf("pids.max of the new group is %v, want 5", v)
	}
	if _, inSight := h.cache.read(at, []node.CgroupPath{"a"}, nil)[tasks("b")]; inSight {
		t.Error("a group that left is still in sight")
	}
}

// countedHost returns a resident host whose cgroup tree is a directory of files,
// and which has its own journal. The third result writes a file of /proc.
func countedHost(t *testing.T, names ...string) (*Host, func(group, file, text string), func(file, text string)) {
	t.Helper()
	h, write := fixtureHost(t, names...)
	dir, err := h.tree.Dir("cpu", "")
	if err != nil {
		t.Fatal(err)
	}
	h.workloads, h.fs = map[node.WorkloadID]node.Workload{}, proc.FS{Proc: filepath.Join(dir, "..", "proc")}
	return withKnobs(h), write, func(file, text string) { write("../proc", file, text) }
}
