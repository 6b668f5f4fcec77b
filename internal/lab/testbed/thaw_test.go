package testbed_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/testbed"
)

// TestMain lets the test binary also serve as the lab's child process.
func TestMain(m *testing.M) { labtest.Main(m) }

// TestAFreezerThatDiedFreezesNothing checks that the lab does not freeze what no
// process would thaw.
func TestAFreezerThatDiedFreezesNothing(t *testing.T) {
	labtest.RequireReal(t)
	s := labtest.Setting(t)
	site, err := testbed.Enter(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := site.Close(); err != nil {
			t.Error(err)
		}
		labtest.NothingLeft(t, s)
	})
	if err := site.Host.MakeGroup(s.Root); err != nil {
		t.Fatal(err)
	}
	f, err := site.NewFreezer(s.Root)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Freeze(true); err != nil {
		t.Fatal(err)
	}
	if is, err := site.Tree.IsFrozen(string(s.Root)); err != nil || !is {
		t.Errorf("frozen: %v, %v", is, err)
	}
	if err := unix.Kill(f.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var refused error
	for end := time.Now().Add(10 * time.Second); refused == nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		refused = f.Freeze(true)
	}
	if refused == nil {
		t.Error("the group is frozen although no process would thaw it")
	}
	if err := f.Close(); err == nil {
		t.Error("the end of the process is no error")
	}
	if is, err := site.Tree.IsFrozen(string(s.Root)); err != nil || is {
		t.Errorf("frozen: %v, %v", is, err)
	}
}
