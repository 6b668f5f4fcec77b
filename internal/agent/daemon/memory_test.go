package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/agent/configfile"
	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/agent/workers"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
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
	now, err := uptime()
	if err != nil {
		t.Fatal(err)
	}
	if err := saveState(dir, fs, now, measuredState(long), containers); err != nil {
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

// TestTheNextDaemonRemembersNamesOfAnyBytes saves the counters of cgroups whose names are
// not UTF-8, which the kernel accepts. JSON has one form for all of them.
func TestTheNextDaemonRemembersNamesOfAnyBytes(t *testing.T) {
	dir, fs := t.TempDir(), proc.Default()
	now, err := uptime()
	if err != nil {
		t.Fatal(err)
	}
	st := measuredState(time.Now())
	used := map[node.WorkloadID]time.Duration{"be/\xff": 1, "be/\xfe": 2, "be/\ufffd": 3, `be/"\xff"`: 4}
	st.Use.Counter = used
	containers := map[string][]container.Container{"containerd:///run/c.sock": {{ID: "c1", Cgroup: "default/\xff"}}}
	if err := saveState(dir, fs, now, st, containers); err != nil {
		t.Fatal(err)
	}
	r, _, ok := loadState(dir, fs)
	if !ok {
		t.Fatal("nothing was remembered")
	}
	if diff := cmp.Diff(used, r.State.Use.Counter); diff != "" {
		t.Errorf("the counters (-saved +remembered):\n%s", diff)
	}
	if diff := cmp.Diff(containers, r.Containers); diff != "" {
		t.Errorf("the containers (-saved +remembered):\n%s", diff)
	}
}

// TestTheNextDaemonKnowsWhenTheCountersWereRead saves a state nine seconds after its
// snapshot, as on a node whose ticks are ten seconds apart. The next daemon must
// not take the use of these nine seconds for the use of a moment. If it stops
// before its first tick, the counters are older still.
func TestTheNextDaemonKnowsWhenTheCountersWereRead(t *testing.T) {
	dir, fs := t.TempDir(), proc.Default()
	now, err := uptime()
	if err != nil {
		t.Fatal(err)
	}
	read, st := now-9*time.Second, measuredState(time.Now())
	for range 2 {
		if err := saveState(dir, fs, read, st, nil); err != nil {
			t.Fatal(err)
		}
		r, age, ok := loadState(dir, fs)
		if passed := time.Since(r.State.Use.At); !ok || passed < 9*time.Second || passed > 9*time.Second+time.Minute {
			t.Errorf("the counters are %v old, want 9 s", passed)
		}
		if age >= 9*time.Second {
			t.Errorf("the state was saved %v ago", age)
		}
		read, st = r.Read, r.State
	}
}

// TestASnapshotSetsTheTimeOfTheCounters takes a snapshot as the loop does. A
// snapshot that fails has no counters, so it must not change the time.
func TestASnapshotSetsTheTimeOfTheCounters(t *testing.T) {
	g, fs, log, send := openTestGuard(t), proc.Default(), slog.New(slog.DiscardHandler), func(tick.Event) {}
	d := &daemon{Options: Options{Log: log}, host: g.host, guard: g, health: g.health, agent: new(loop.Agent)}
	var err error
	if d.file, d.config, err = configfile.Open(t.Context(), filepath.Join(g.dir, "absent.yaml"), true); err != nil {
		t.Fatal(err)
	}
	if d.slices, err = workers.Open(g.dir, fs, log, send); err != nil {
		t.Fatal(err)
	}
	if d.mechanisms, err = openMechanisms(g.dir, fs, send); err != nil {
		t.Fatal(err)
	}
	_, tree := treeOfFiles(t)
	d.signals = openSignals(t.Context(), d.host, tree, fs, log)
	before, err := uptime()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := d.read
	if first < before {
		t.Errorf("after a snapshot at %v the counters are of %v", before, first)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := d.Snapshot(ended); err == nil || d.read != first {
		t.Errorf("after a snapshot that failed (%v) the counters are of %v, want %v", err, d.read, first)
	}
}

func TestMemoryOfAnotherBootOrOfRubbishIsIgnored(t *testing.T) {
	dir, fs := t.TempDir(), proc.Default()
	if err := saveState(dir, fs, 0, measuredState(time.Now()), nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, statedir.MemoryFile)
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
		"another form": strings.Replace(string(data), `"version":2`, `"version":1`, 1),
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
