package workers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var configured = []worker.Slice{{Name: "encoders", CPUs: 4, Count: 2, Rules: []string{"encode"}}, {Name: "small", CPUs: 1, Count: 1}}

// boot is a machine with this boot id.
func boot(t *testing.T, id string) proc.FS {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "sys", "kernel", "random", "boot_id")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(id+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return proc.FS{Proc: dir}
}

// loop makes a tick with the slices that the desk's Begin returns.
func loop(d *Desk, cpus int) []worker.Slice {
	all := d.Begin(configured)
	s := node.Snapshot{At: time.Unix(1000, 0)}
	for c := range cpus {
		s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: unit.CPU(c)})
	}
	d.End(tick.Tick{Snapshot: s, Slices: worker.StatusOf(all, nil, func(worker.Place) unit.CPUSet { return unit.CPUSet{} })})
	return all
}

func open(t *testing.T, dir string, fs proc.FS, wake func(*Desk)) *Desk {
	t.Helper()
	var d *Desk
	d, err := Open(dir, fs, slog.New(slog.DiscardHandler), func(tick.Event) { wake(d) })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestASizeHoldsUntilTheNodeBoots checks that the next daemon uses the same
// size. A request for 0 CPUs must restore the configured size.
func TestASizeHoldsUntilTheNodeBoots(t *testing.T) {
	dir, first := t.TempDir(), boot(t, "one")
	awake := func(d *Desk) { loop(d, 8) }
	d := open(t, dir, first, awake)
	loop(d, 8)
	if err := d.Set(t.Context(), "encoders", 6); err != nil {
		t.Fatal(err)
	}
	if got := d.List()[0]; got.CPUs != 6 || got.Configured != 4 {
		t.Errorf("%+v: want 6 CPUs in place of 4", got)
	}
	d = open(t, dir, first, awake)
	if got := loop(d, 8)[0]; got.CPUs != 6 {
		t.Errorf("the next daemon has %+v", got)
	}
	if got := loop(open(t, dir, boot(t, "two"), awake), 8)[0]; got.CPUs != 4 || got.Configured != 0 {
		t.Errorf("after a boot: %+v", got)
	}
	if err := d.Set(t.Context(), "encoders", 0); err != nil || loop(d, 8)[0].CPUs != 4 {
		t.Errorf("%v, %+v: want the size of the configuration", err, loop(d, 8)[0])
	}
}

func TestWrongRequestsNameTheRange(t *testing.T) {
	d := open(t, t.TempDir(), boot(t, "one"), func(d *Desk) { loop(d, 8) })
	if err := d.Set(t.Context(), "encoders", 1); err == nil || !strings.Contains(err.Error(), "the configuration has no slices") {
		t.Errorf("before the first tick: %v", err)
	}
	if text, err := json.Marshal(d.List()); err != nil || string(text) != "[]" {
		t.Errorf("without slices the list is %s, %v", text, err)
	}
	loop(d, 8)
	for want, c := range map[string]struct {
		name string
		cpus int
	}{
		`slice "encodrs": want one of encoders, small`:                                 {"encodrs", 1},
		"slice encoders: 9: want 1 to 8 CPUs, or 0 for the size of the configuration":  {"encoders", 9},
		"slice encoders: -1: want 1 to 8 CPUs, or 0 for the size of the configuration": {"encoders", -1},
	} {
		if err := d.Set(t.Context(), c.name, c.cpus); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestASizeThatCannotBeSavedChangesNothing checks that such a size is not used.
// Otherwise the next daemon would use another size.
func TestASizeThatCannotBeSavedChangesNothing(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, boot(t, "one"), func(d *Desk) { loop(d, 8) })
	loop(d, 8)
	if err := os.Mkdir(filepath.Join(dir, sizesFile+".next"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Set(t.Context(), "encoders", 2); err == nil || !strings.Contains(err.Error(), "save the size of slice encoders") {
		t.Errorf("%v", err)
	}
	if got := loop(d, 8)[0]; got.CPUs != 4 {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, sizesFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if d, err := Open(dir, boot(t, "one"), slog.New(slog.NewTextHandler(&said, nil)), nil); d == nil || err != nil || !strings.Contains(said.String(), "set by hand are lost") {
		t.Errorf("a damaged file: %v, %v, %q", d, err, said.String())
	}
}

// TestARequestWaitsForATick checks that a tick that could not read the node
// does not count.
func TestARequestWaitsForATick(t *testing.T) {
	d := open(t, t.TempDir(), boot(t, "one"), func(d *Desk) {
		d.Begin(configured)
		d.End(tick.Tick{})
	})
	loop(d, 8)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := d.Set(ctx, "small", 2); err == nil || !strings.Contains(err.Error(), "no tick of tenond has applied it yet") {
		t.Errorf("%v", err)
	}
}

// TestAWriteThatFailedIsTheOutcome checks that Set reports an error if the CPUs
// of a worker could not be written. It must not report the error of another
// write.
func TestAWriteThatFailedIsTheOutcome(t *testing.T) {
	refused := errors.New("no space left on device")
	for owner, want := range map[plan.Owner]error{plan.OwnerSeat: refused, plan.OwnerMechanism: nil} {
		d := open(t, t.TempDir(), boot(t, "one"), func(d *Desk) {
			d.Begin(configured)
			step := plan.Step{Knob: node.Knob{Cgroup: "batch/encode", File: node.FileCPUs}, Owner: owner}
			d.End(tick.Tick{Snapshot: node.Snapshot{At: time.Unix(1000, 0)}, Done: []tick.Outcome{{Step: step, Err: refused}}})
		})
		loop(d, 8)
		if err := d.Set(t.Context(), "small", 2); !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), "batch/encode") {
			t.Errorf("%v: the outcome is %v, want %v", owner, err, want)
		}
	}
}

func TestTheTableSaysWhatIsShared(t *testing.T) {
	text := Text([]worker.Status{{Slice: worker.Slice{Name: "enc", CPUs: 6, Count: 3, Configured: 4}, Workers: []worker.Worker{
		{Number: 1, CPUs: unit.CPUSetOf(0, 1, 2), Work: []node.WorkloadID{"a", "b"}}, {Number: 2, Work: []node.WorkloadID{"c"}}, {Number: 3},
	}}})
	for _, want := range []string{"     1  0-2              a, b\n", "     2  shared           c\n", "     3  -                \n", "have 6 CPUs by hand; the configuration says 4", "workers of 6 do not fit"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing from\n%s", want, text)
		}
	}
	if Text(nil) != "The configuration of tenond has no slices.\n" {
		t.Errorf("%q", Text(nil))
	}
}
