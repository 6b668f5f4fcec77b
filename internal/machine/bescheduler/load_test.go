package bescheduler

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A model is a kernel that can load schedulers. It also stands for each of
// these schedulers, which do nothing.
type model struct {
	Program // provides the methods that no test here calls
	loads   int
	events  chan scx.Event
}

func (m *model) Load(scx.Options) (Program, error) {
	m.loads++
	return m, nil
}

func (m *model) Events() <-chan scx.Event    { return m.events }
func (m *model) SetCap(unit.MilliCPU) error  { return nil }
func (m *model) Status() (scx.Status, error) { return scx.Status{}, nil }
func (m *model) Close() error                { return nil }

// TestSchedulerIsNotReloadedUnwanted changes the CPUs, so that the scheduler
// must be loaded again. Before this load the scheduler becomes unwanted, so the
// load must not happen.
func TestSchedulerIsNotReloadedUnwanted(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"proc/self/mountinfo":   "31 24 0:28 / " + dir + "/v2 rw - cgroup2 cgroup2 rw\n",
		"v2/cgroup.controllers": "cpu\n",
	} {
		name := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroup.Detect(filepath.Join(dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	kernel := &model{events: make(chan scx.Event)}
	x := New(Options{Kernel: kernel, Tree: tree, Topology: topology.New(proc.Default()), Now: time.Now, On: Events{Loaded: func() {}}})
	if err := x.Write(node.Scheduler{Loaded: true}); err != nil {
		t.Fatal(err)
	}
	x.recordEnd(kernel)
	if err := errors.Join(x.Write(node.Scheduler{}), x.reload()); err != nil {
		t.Fatal(err)
	}
	if kernel.loads != 1 || x.Loaded() {
		t.Errorf("it was loaded %d times, and is loaded: %v", kernel.loads, x.Loaded())
	}
}
