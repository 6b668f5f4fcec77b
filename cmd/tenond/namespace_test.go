package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
)

// tellCgroup is a program of the test. It prints its cgroup, enters the cgroup
// namespace of the process given as its argument, and prints its cgroup again.
func tellCgroup() {
	entries, err := proc.Default().SelfCgroup()
	for _, e := range entries {
		if slices.Contains(e.Controllers, "cpu") || len(entries) == 1 {
			fmt.Println(e.Path)
		}
	}
	pid, err2 := strconv.Atoi(os.Args[1])
	if err = errors.Join(err, err2); err == nil {
		err = enterCgroups(pid)
	}
	if err != nil {
		fmt.Println(err)
	}
}

// TestTheCgroupNamespaceOfAnotherIsEntered starts the program in a cgroup
// namespace of its own, as in a container on cgroup v2. The program sees its
// cgroup as the root until it enters the other namespace.
func TestTheCgroupNamespaceOfAnotherIsEntered(t *testing.T) {
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip("needs unshare: run scripts/install-deps.sh test")
	}
	group := fmt.Sprintf("tenon-test-namespace-%d", os.Getpid())
	tree, err := cgroup.Detect("/proc")
	if err == nil {
		err = tree.Make(group)
	}
	if err != nil && os.Getenv("TENON_TEST_STRICT") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("needs to make cgroups: %v", err)
	}
	t.Cleanup(func() {
		if err := tree.RemoveAll(group); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command("sh", "-c", fmt.Sprintf("read line && exec unshare --cgroup tell-cgroup %d", os.Getpid()))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := tree.Attach(group, cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if want := "/\n/" + group + "\n"; said.String() != want {
		t.Errorf("the program printed %q, want %q", said.String(), want)
	}
}
