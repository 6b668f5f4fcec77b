package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/psi"
	"tenon.sh/tenon/internal/model/unit"
)

func TestTriggerAsksInMicrosecondsAndEndsWithClose(t *testing.T) {
	const ms = time.Millisecond
	tree := fixture(t, onlyV2+"-- v2/a/cpu.stat --\n")
	dir, err := tree.Dir(cpu, "a")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "memory.pressure")
	if err := syscall.Mkfifo(file, 0o600); err != nil { // epoll does not support plain files
		t.Fatal(err)
	}
	asked, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	tr, err := tree.Trigger("a", "memory", 50*ms, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 64)
	if n, err := asked.Read(text); err != nil || string(text[:n]) != "some 50000 1000000\n" {
		t.Errorf("the trigger wrote %q, %v", text[:n], err)
	}
	tr.Close()
	tr.Close()
	if _, open := <-tr.Fired(); open || tr.Err() != nil {
		t.Errorf("after Close: open %v, %v", open, tr.Err())
	}
}

func TestTriggersThatCannotBe(t *testing.T) {
	const ms = time.Millisecond
	tree := fixture(t, onlyV2+"-- v2/a/cpu.pressure --\n")
	errorOf := func(_ any, err error) error { return err }
	for name, c := range map[string]struct {
		err  error
		want error // nil: any error
		text string
	}{
		"on v1":           {errorOf(fixture(t, onlyV1+"-- cpu/a/tasks --\n").Trigger("a", "cpu", ms, time.Second)), ErrUnsupported, "watch cpu.pressure in a: cgroup v1"},
		"no such group":   {errorOf(tree.Trigger("b", "cpu", ms, time.Second)), ErrGone, "watch cpu.pressure in b for 1ms in 1s"},
		"no such file":    {errorOf(tree.Trigger("a", "io", ms, time.Second)), ErrUnsupported, "watch io.pressure in a"},
		"no stall":        {errorOf(tree.Trigger("a", "cpu", 0, time.Second)), nil, "for 0s in 1s: want 1µs ≤ stall"},
		"stall too long":  {errorOf(tree.Trigger("a", "cpu", 2*time.Second, time.Second)), nil, "for 2s in 1s: want 1µs ≤ stall"},
		"window too long": {errorOf(tree.Trigger("a", "cpu", ms, time.Minute)), nil, "window ≤ 10s"},
		"out of the tree": {errorOf(tree.Trigger("../a", "cpu", ms, time.Second)), syscall.EINVAL, `cgroup path "../a"`},
		"node without":    {errorOf(NodeTrigger(t.TempDir(), "cpu", ms, time.Second)), ErrUnsupported, "pressure/cpu for 1ms in 1s"},
		"node, no stall":  {errorOf(NodeTrigger("proc", "cpu", 0, time.Second)), nil, "watch proc/pressure/cpu for 0s in 1s: want 1µs ≤ stall"},
	} {
		if c.err == nil || (c.want != nil && !errors.Is(c.err, c.want)) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: got %v, want %v and %q", name, c.err, c.want, c.text)
		}
	}
}

// spin starts n busy processes. With more processes than CPUs, some of them
// wait for a CPU.
func spin(t *testing.T, n int) (pids []int) {
	t.Helper()
	for range n {
		pids = append(pids, start(t, "sh", "-c", "while :; do :; done").Process.Pid)
	}
	return pids
}

// fires waits until a trigger fires. It returns false if the
// trigger ends before.
func fires(t *testing.T, tr *psi.Trigger) bool {
	t.Helper()
	select {
	case _, open := <-tr.Fired():
		return open
	case <-time.After(20 * time.Second):
		t.Fatal("no event in 20 s")
		return false
	}
}

func TestNodeTriggerFiresUnderLoad(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test loads all CPUs; it runs only as root")
	}
	const ms = time.Millisecond
	tr, err := NodeTrigger("/proc", "cpu", ms, 500*ms)
	if errors.Is(err, syscall.EINVAL) { // an old kernel, or root without CAP_SYS_RESOURCE
		t.Log(err)
		tr, err = NodeTrigger("/proc", "cpu", ms, 2*time.Second)
	}
	if errors.Is(err, ErrUnsupported) && os.Getenv("TENON_TEST_STRICT") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	began := time.Now()
	spin(t, 2*runtime.NumCPU()+1)
	if !fires(t, tr) {
		t.Fatalf("the trigger ended: %v", tr.Err())
	}
	t.Logf("fired after %v", time.Since(began))
}

func TestV2TriggerFiresForItsGroupAndEndsWithIt(t *testing.T) {
	const ms = time.Millisecond
	tree, path := v2Group(t)
	busy, calm := path+"/busy", path+"/calm"
	if err := errors.Join(tree.Make(busy), tree.Make(calm), tree.WriteCPUs(busy, unit.CPUSetOf(0))); err != nil {
		t.Fatal(err)
	}
	triggers := map[string]*psi.Trigger{}
	for _, group := range []string{busy, calm, ""} {
		tr, err := tree.Trigger(group, "cpu", ms, 500*ms)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tr.Close)
		triggers[group] = tr
	}
	for _, pid := range spin(t, 3) {
		if err := tree.Attach(busy, pid); err != nil {
			t.Fatal(err)
		}
	}
	for _, group := range []string{busy, busy, ""} { // several times
		if !fires(t, triggers[group]) {
			t.Fatalf("the trigger of %q ended: %v", group, triggers[group].Err())
		}
	}
	select {
	case <-triggers[calm].Fired():
		t.Errorf("the trigger of a calm group fired or ended: %v", triggers[calm].Err())
	default:
	}
	ids, err := tree.Procs(busy)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range ids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	if err := tree.Remove(busy); err != nil {
		t.Fatal(err)
	}
	for fires(t, triggers[busy]) { // drain the events from before the removal
	}
	if err := triggers[busy].Err(); !errors.Is(err, ErrGone) {
		t.Errorf("trigger of a removed group: %v, want ErrGone", err)
	}
}
