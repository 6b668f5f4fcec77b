package watchdog

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/model/node"
)

// hostOn returns a host on a tree of plain files with the group be.
func hostOn(t *testing.T, o host.Options) *host.Host {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"proc/self/mountinfo":   fmt.Sprintf("31 24 0:28 / %s rw - cgroup2 cgroup2 rw\n", filepath.Join(dir, "v2")),
		"v2/cgroup.controllers": "cpu\n",
		"v2/be/cpu.max":         "max 100000\n",
		"v2/be/cpu.max.burst":   "0\n",
		"v2/be/cgroup.threads":  "",
	} {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if o.Tree, err = cgroup.Detect(filepath.Join(dir, "proc")); err != nil {
		t.Fatal(err)
	}
	o.JournalDir = filepath.Join(dir, "journal")
	h, err := host.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestTheWatchdogsQuotaHoldsOnSchedExt checks that the watchdog moves threads
// out of sched_ext, because the kernel applies no quota to threads of
// sched_ext. After a failure, the watchdog must try again.
func TestTheWatchdogsQuotaHoldsOnSchedExt(t *testing.T) {
	var released []node.CgroupPath
	var refuses error
	var said strings.Builder
	w := watchdog{host: hostOn(t, host.Options{}), log: slog.New(slog.NewTextHandler(&said, nil)), release: func(p node.CgroupPath) (int, error) {
		released = append(released, p)
		return 3, refuses
	}}
	of := lease.Holder{PID: 1 << 24, Start: 1}
	w.behalf = hostOn(t, host.Options{Behalf: &journal.Session{PID: of.PID, Start: of.Start}})
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	quota := node.Knob{Cgroup: "be", File: node.FileCPUMax}
	look := func(want ...node.CgroupPath) {
		t.Helper()
		if _, _, err := w.read(quota); !errors.Is(err, refuses) {
			t.Errorf("read: %v, want %v", err, refuses)
		}
		if !slices.Equal(released, want) {
			t.Errorf("released: %v, want %v", released, want)
		}
	}
	look()
	refuses = errors.New("they fork too fast")
	if err := w.apply(t.Context(), of, plan.Step{Knob: quota, To: node.Limit(200)}); !errors.Is(err, refuses) {
		t.Errorf("apply: %v", err)
	}
	look("be", "be")
	refuses = nil
	look("be", "be", "be")
	look("be", "be", "be")
	if !strings.Contains(said.String(), "threads=3") {
		t.Errorf("the log is %q", said.String())
	}
}
