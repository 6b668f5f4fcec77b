package isolation

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestSchedulerThatGoesKeepsNoOneOut(t *testing.T) {
	for state, want := range map[string]string{"enabled": "theirs", "enabling": "theirs", "disabling": "", "disabled": ""} {
		sys := t.TempDir()
		dir := filepath.Join(sys, "kernel/sched_ext")
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "root"), 0o755), os.WriteFile(filepath.Join(dir, "state"), []byte(state+"\n"), 0o644),
			os.WriteFile(filepath.Join(dir, "root/ops"), []byte("theirs\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if got := foreignScheduler(sys); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}
