package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/runtimes/container"
)

// measuredState returns the State after one snapshot.
func measuredState(at time.Time) policy.State {
	st, _ := policy.Decide(policy.Config{}, policy.State{}, node.Snapshot{
		At:        at,
		Workloads: []node.Workload{{ID: "web", Class: node.LS, Usage: node.Usage{CPU: node.Some(time.Second)}}},
	})
	return st
}

func TestTheNextDaemonRemembersOnce(t *testing.T) {
	dir, fs := t.TempDir(), proc.Default()
	long := time.Now().Add(-24 * time.Hour) // the wall clock has been set since then
	containers := map[string][]container.Container{
		"containerd:///run/c.sock": {{ID: "c1", Name: "encode", Labels: map[string]string{"class": "BE"}, Cgroup: "default/c1"}},
	}
	if err := saveState(dir, fs, measuredState(long), containers); err != nil {
		t.Fatal(err)
	}
	r, age, ok := loadState(dir, fs)
	if !ok || age < 0 || age > time.Minute {
		t.Fatalf("nothing was remembered: %v, %v", age, ok)
	}
	if r.State.Use.Counter["web"] != time.Second || time.Since(r.State.Use.At) > time.Minute {
		t.Errorf("remembered %+v", r.State.Use)
	}
	if diff := cmp.Diff(containers, r.Containers); diff != "" {
		t.Errorf("the containers (-saved +remembered):\n%s", diff)
	}
	if _, _, again := loadState(dir, fs); again {
		t.Error("remembered twice")
	}
}

func TestMemoryOfAnotherBootOrOfRubbishIsIgnored(t *testing.T) {
	dir, fs := t.TempDir(), proc.Default()
	if err := saveState(dir, fs, measuredState(time.Now()), nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, memoryFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := fs.BootID()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"another boot": strings.ReplaceAll(string(data), boot, "00000000-0000-0000-0000-000000000000"),
		"torn":         string(data[:len(data)/2]),
		"empty":        "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, ok := loadState(dir, fs); ok {
			t.Errorf("loadState accepted a file with: %s", name)
		}
	}
}
