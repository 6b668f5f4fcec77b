package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/workers"
	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A sliceOperator is an operator with slices. Its loop runs a tick at each
// request.
type sliceOperator struct {
	*operator
	*workers.Desk
}

// Handle registers the requests of the slices.
func (s sliceOperator) Handle(mux *http.ServeMux) { s.Desk.Handle(mux) }

// turn runs a tick in which the first worker has one workload.
func (s sliceOperator) turn() {
	all := s.Begin([]worker.Slice{{Name: "encoders", CPUs: 4, Count: 2, Rules: []string{"batch"}}})
	t := agentTick(s.second)
	for c := range 8 {
		t.Snapshot.Topology.CPUs = append(t.Snapshot.Topology.CPUs, node.LogicalCPU{ID: unit.CPU(c + 2), Core: node.CoreID(c + 2)})
	}
	in := worker.Places{"batch.slice/job.service": {Slice: "encoders", Worker: 1}}
	t.Slices = worker.StatusOf(all, in, func(p worker.Place) (set unit.CPUSet) {
		for c := range all[0].CPUs {
			if p.Worker == 1 {
				set = set.With(unit.CPU(c))
			}
		}
		return set
	})
	s.ledger.Observe(t, nil)
	s.End(t)
}

func TestSlicesAreSeenAndResizedFromTheCommandLine(t *testing.T) {
	o := sliceOperator{operator: &operator{ledger: control.NewLedger("v1"), second: 3}}
	var err error
	if o.Desk, err = workers.Open(t.TempDir(), proc.Default(), slog.New(slog.DiscardHandler), func(tick.Event) { o.turn() }); err != nil {
		t.Skipf("this machine has no boot id: %v", err)
	}
	o.turn()
	dir := serveAt(t, o.ledger, o)
	for _, c := range []struct{ args, want, fault string }{
		{args: "slice list", want: "encoders              1  0-3              batch.slice/job.service\nencoders              2  -"},
		{args: "slice list -o json", want: `"cpus": 4`},
		{args: "slice set encoders=6", want: "encoders              1  0-5              batch.slice/job.service"},
		{args: "slice list", want: "Workers of encoders have 6 CPUs by hand; the configuration says 4."},
		{args: "explain job.service", want: "by rule batch, in worker 1 of slice encoders"},
		{args: "slice set encoders=0", want: "encoders              1  0-3"},
		{args: "slice set encoders=11", fault: "slice encoders: 11: want 1 to 10 CPUs"},
		{args: "slice set encoders=99999", fault: "slice encoders: 99999: want 1 to 2048 CPUs, or 0 for the size of the configuration"},
		{args: "slice set _x=4", fault: `slice "_x": want 1 to 63 letters, digits, dots`},
		{args: "slice set encodrs=2", fault: `slice "encodrs": want one of encoders`},
		{args: "slice set encoders", fault: `"encoders": want NAME=CPUS, with a whole number of CPUs from 0`},
		{args: "slice set encoders=many", fault: "want NAME=CPUS"},
		{args: "slice set", fault: "slice set wants one NAME=CPUS, got 0"},
	} {
		got, err := see(t, dir, strings.Fields(c.args)...)
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("tenon %s: %v, want %q", c.args, err, c.fault)
			}
		case err != nil || !strings.Contains(got, c.want):
			t.Errorf("tenon %s: %q is not in\n%s%v", c.args, c.want, got, err)
		}
	}
	if _, err := see(t, t.TempDir(), "slice", "set", "a b=4"); err == nil || !strings.HasPrefix(err.Error(), `slice "a b": want 1 to 63 letters`) {
		t.Errorf("a name with a blank, without an agent: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"slice", "set", "encoders=4"}, {"slice", "list"}} {
		if _, err := see(t, file, args...); err == nil || !strings.HasSuffix(err.Error(), file+" is not a directory: want the state directory of tenond") || strings.Contains(err.Error(), "http://") {
			t.Errorf("%v with a file as state directory: %v", args, err)
		}
	}
	_, err = workers.Set(context.Background(), control.NewClient(t.TempDir()), "encoders", 1)
	if err == nil || !strings.Contains(err.Error(), "tenond is not running") {
		t.Errorf("without an agent: %v", err)
	}
}
