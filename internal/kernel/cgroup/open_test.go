package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// TestOnlySoManyFilesStayOpen reads more groups than files may stay open. Each
// counter must be read, and a descriptor that becomes free must be used again.
func TestOnlySoManyFilesStayOpen(t *testing.T) {
	const groups, most = 10, 4
	archive := &strings.Builder{}
	fmt.Fprintf(archive, "-- proc/self/mountinfo --\n31 24 0:28 / ROOT/v2 rw - cgroup2 cgroup2 rw\n-- v2/cgroup.controllers --\ncpu memory\n")
	for i := range groups {
		fmt.Fprintf(archive, "-- v2/job-%d/memory.current --\n%d\n", i, 1000+i)
	}
	tree := fixture(t, archive.String()).KeepOpen(most)
	readAll := func() {
		t.Helper()
		for i := range groups {
			if got, err := tree.MemoryCurrent(fmt.Sprintf("job-%d", i)); err != nil || int(got) != 1000+i {
				t.Errorf("job-%d reads %v, %v", i, got, err)
			}
		}
	}
	open := tree.hierarchies[0].open.Len
	for range 2 {
		if readAll(); open() != most {
			t.Errorf("%d files are open, want %d", open(), most)
		}
	}
	for i := range groups {
		tree.Close(fmt.Sprintf("job-%d", i))
	}
	if readAll(); open() != most {
		t.Errorf("after Close %d files are open, want %d", open(), most)
	}
	tree.CloseAll()
	if open() != 0 {
		t.Errorf("after CloseAll %d files are open", open())
	}
}

// TestSettingsLeaveFilesToCounters reads a setting of many groups, more than
// the number of files that settings may keep open. Half of the files must
// remain for counters.
func TestSettingsLeaveFilesToCounters(t *testing.T) {
	const groups, most = 10, 4
	archive := &strings.Builder{}
	fmt.Fprintf(archive, "-- proc/self/mountinfo --\n31 24 0:28 / ROOT/v2 rw - cgroup2 cgroup2 rw\n-- v2/cgroup.controllers --\ncpu memory\n")
	for i := range groups {
		fmt.Fprintf(archive, "-- v2/job-%d/cpu.max --\n%d000 100000\n", i, 10+i)
		fmt.Fprintf(archive, "-- v2/job-%d/memory.current --\n1\n", i)
	}
	tree := fixture(t, archive.String()).KeepOpen(most)
	for i := range groups {
		want := time.Duration(10+i) * time.Millisecond
		if got, err := tree.ReadCPUMax(fmt.Sprintf("job-%d", i)); err != nil || got.Quota != want {
			t.Errorf("job-%d reads %v, %v, want a quota of %v", i, got, err, want)
		}
	}
	if n := tree.hierarchies[0].open.Len(); n != most/2 {
		t.Errorf("settings keep %d of %d files open, want half", n, most)
	}
	if _, err := tree.MemoryCurrent("job-0"); err != nil || tree.hierarchies[0].open.Len() != most/2+1 {
		t.Errorf("a counter finds no room: %d files are open, %v", tree.hierarchies[0].open.Len(), err)
	}
}

// TestAWriteReopensTheGroup removes a group whose setting is open, and makes it
// again. After a write, the value of the new group must be read.
func TestAWriteReopensTheGroup(t *testing.T) {
	plain := fixture(t, "-- proc/self/mountinfo --\n31 24 0:28 / ROOT/v2 rw - cgroup2 cgroup2 rw\n-- v2/cgroup.controllers --\ncpu\n-- v2/job/cpu.weight --\n100\n-- v2/other/cpu.weight --\n7\n")
	tree := plain.KeepOpen(8)
	if w, err := tree.ReadCPUWeight("job"); err != nil || w.Weight != unit.WeightOf(100) {
		t.Fatalf("job has %v, %v", w, err)
	}
	dir := tree.hierarchies[0].mount
	for _, names := range [][2]string{{"job", "old"}, {"other", "job"}} {
		if err := os.Rename(filepath.Join(dir, names[0]), filepath.Join(dir, names[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.WriteCPUWeight("job", CPUWeight{Weight: unit.WeightOf(55)}); err != nil {
		t.Fatal(err)
	}
	if w, err := tree.ReadCPUWeight("job"); err != nil || w.Weight != unit.WeightOf(55) {
		t.Errorf("after the write job has %v, %v", w, err)
	}
}
