package cgroup

import (
	"errors"
	"slices"
	"testing"
)

func TestThreadsAreThoseOfTheGroupItself(t *testing.T) {
	tree, path := kernelGroup(t)
	leaf := path + "/a"
	if err := tree.Make(leaf); err != nil {
		t.Fatal(err)
	}
	pid := start(t, "sleep", "60").Process.Pid
	if err := tree.Attach(leaf, pid); err != nil {
		t.Fatal(err)
	}
	if ids, err := tree.Threads(leaf); err != nil || !slices.Equal(ids, []int{pid}) {
		t.Errorf("threads %v, %v, want %d", ids, err, pid)
	}
	if ids, err := tree.Threads(path); err != nil || len(ids) != 0 {
		t.Errorf("threads of the parent: %v, %v, want none", ids, err)
	}
	if ids, err := tree.Threads(path + "/none"); !errors.Is(err, ErrGone) {
		t.Errorf("threads of a missing group: %v, %v", ids, err)
	}
}
