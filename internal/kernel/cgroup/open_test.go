package cgroup

import (
	"fmt"
	"strings"
	"testing"
)

// TestOnlySoManyFilesStayOpen reads more groups than files may be kept open:
// each counter is read, and a descriptor that becomes free is used again.
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
	open := func() (n int) {
		for _, files := range tree.all[0].open.files {
			n += len(files)
		}
		return n
	}
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
	if left := tree.all[0].open.left; left != most || open() != 0 {
		t.Errorf("after CloseAll %d files are open, and %d more may be, want %d", open(), left, most)
	}
}
