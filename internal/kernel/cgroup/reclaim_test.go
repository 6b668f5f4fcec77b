package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// TestReclaimWritesAnAmount checks the text of the write, and what is no answer of the
// kernel to it. The kernel itself is asked in TestV2ReclaimAnswers.
func TestReclaimWritesAnAmount(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/mountinfo", "31 24 0:28 / "+root+"/v2 rw - cgroup2 cgroup2 rw\n")
	write("v2/cgroup.controllers", "cpu memory\n")
	write("v2/job/memory.stat", "anon 0\npgsteal 7\n")
	write("v2/job/memory.reclaim", "")
	write("v2/old/memory.stat", "anon 0\npgsteal 7\n")
	write("v2/dark/memory.stat", "anon 0\n")
	tree, err := Detect(filepath.Join(root, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Reclaim(t.Context(), tree, "job", unit.Bytes(3<<20)); err != nil {
		t.Error(err)
	}
	if got, err := Stolen(tree, "job"); got != unit.Bytes(7*os.Getpagesize()) || err != nil {
		t.Errorf("reclaimed so far: %v, %v", got, err)
	}
	if text, err := os.ReadFile(filepath.Join(root, "v2/job/memory.reclaim")); string(text) != "3145728" || err != nil {
		t.Errorf("wrote %q, %v", text, err)
	}
	if err := Reclaim(t.Context(), tree, "old", 1<<20); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on a kernel without the file: %v", err)
	}
	if err := Reclaim(t.Context(), tree, "none", 1<<20); !errors.Is(err, ErrGone) {
		t.Errorf("in a group that is gone: %v", err)
	}
	if _, err := Stolen(tree, "dark"); err == nil {
		t.Error("without pgsteal, nothing says what was reclaimed")
	}
	write("proc/self/mountinfo", "31 24 0:28 / "+root+"/v1 rw - cgroup cgroup rw,memory\n")
	write("v1/job/memory.force_empty", "")
	if tree, err = Detect(filepath.Join(root, "proc")); err != nil {
		t.Fatal(err)
	}
	if err := Reclaim(t.Context(), tree, "job", 1<<20); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on v1: %v", err)
	}
}

// TestASignalOfTheRuntimeEndsNoReclaim lets signals come before and after the end of ctx.
func TestASignalOfTheRuntimeEndsNoReclaim(t *testing.T) {
	for name, c := range map[string]struct {
		end   int // ctx ends in this call
		calls int
		want  error
	}{
		"ctx goes on":           {0, 3, syscall.EAGAIN},
		"ctx ends in a call":    {2, 2, syscall.EINTR},
		"it ends when all went": {3, 3, syscall.EAGAIN},
	} {
		ctx, stop := context.WithCancel(t.Context())
		calls := 0
		err := untilEnd(ctx, func() error {
			if calls++; calls == c.end {
				stop()
			}
			if calls < 3 {
				return syscall.EINTR
			}
			return syscall.EAGAIN
		})
		stop()
		if calls != c.calls || !errors.Is(err, c.want) {
			t.Errorf("%s: %d calls, then %v", name, calls, err)
		}
	}
}
