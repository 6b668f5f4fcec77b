package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// agentTick returns a tick of an agent with one service and one job.
func agentTick(second int) tick.Tick {
	used := node.Usage{CPU: node.Some(time.Duration(second) * time.Second)}
	s := node.Snapshot{
		At:       time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC),
		Topology: node.Topology{CPUs: []node.LogicalCPU{{ID: 0}, {ID: 1, Core: 1}}},
		Workloads: []node.Workload{
			{ID: "batch.slice/job.service", Class: node.BE, Rule: "batch", Cgroup: "batch.slice/job.service", ContentionRoot: "batch.slice", Usage: used},
			{ID: "system.slice/web.service", Class: node.LS, Rule: "web", Cgroup: "system.slice/web.service", ContentionRoot: "system.slice/web.service", Usage: used},
		},
		Knobs: node.Knobs{Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096}, Now: map[node.Knob]node.Value{
			{Cgroup: "batch.slice", File: node.FileCPUWeight}: node.CPUWeight{Weight: unit.WeightOf(100)},
		}},
	}
	t := tick.Tick{Snapshot: s}
	_, t.Wants = policy.Decide(policy.Config{}, policy.State{}, s)
	for _, step := range plan.Diff(s.Knobs, t.Wants) {
		t.Done = append(t.Done, tick.Outcome{Step: step})
	}
	return t
}

// withMechanism returns a tick on a node that supports cpu.idle and weights.
func withMechanism(second int, pinned node.Mechanism) tick.Tick {
	t := agentTick(second)
	t.Selection = node.Selection{Mechanism: cmp.Or(pinned, node.MechanismIdle), Why: "the strongest that this node supports", Pinned: pinned, ByHand: pinned != ""}
	for _, r := range node.Mechanisms {
		s := node.MechanismStatus{Mechanism: r, Can: node.No, Why: "no " + string(r) + " here"}
		if r == node.MechanismIdle || r == node.MechanismWeight {
			s.Can, s.Why = node.Yes, "probed"
		}
		t.Selection.Mechanisms = append(t.Selection.Mechanisms, s)
	}
	return t
}

// An operator is an agent that makes a tick at once when the user chooses a
// mechanism.
type operator struct {
	ledger *control.Ledger
	second int
}

// Handle does nothing, because this operator has no other requests.
func (*operator) Handle(*http.ServeMux) {}

func (o *operator) Pin(_ context.Context, mechanism node.Mechanism) error {
	o.second++
	o.ledger.Observe(withMechanism(o.second, mechanism), nil)
	return nil
}

// agentAt serves a ledger with two ticks, and returns its state directory.
func agentAt(t *testing.T) string {
	t.Helper()
	l := control.NewLedger("v1")
	l.Observe(agentTick(1), nil)
	l.Observe(withMechanism(2, ""), nil)
	return serveAt(t, l, &operator{l, 2})
}

// serveAt serves a ledger, and returns its state directory.
func serveAt(t *testing.T, l *control.Ledger, o control.Operator) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenon-see-") // t.TempDir is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- control.Serve(ctx, dir, l, o, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	for range 1000 {
		if _, err = control.NewClient(dir).Status(ctx); err == nil {
			return dir
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal(err)
	return ""
}

// see runs one of the commands that read from the agent.
func see(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	if args[0] != "replay" {
		args = append(args, "--state-dir", dir)
	}
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTheAgentIsSeenFromTheCommandLine(t *testing.T) {
	dir := agentAt(t)
	for _, c := range []struct {
		args, want string
	}{
		{"status", "LS     1          1000m"},
		{"status -o json", `"id": "system.slice/web.service"`},
		{"explain web.service", "a workload of class LS, by rule web"},
		{"explain batch.slice", "batch.slice: a cgroup"},
		{"explain isolation", "beyond trials  the floor"},
		{"explain batch.slice cpu.weight", "because CPU QoS is off"},
		{"explain batch.slice cpu.weight -o json", `"intent": "release"`},
	} {
		got, err := see(t, dir, strings.Fields(c.args)...)
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("tenon %s: %q is not in\n%s%v", c.args, c.want, got, err)
		}
	}
	for args, want := range map[string]string{
		"explain wbe.service":           "did you mean system.slice/web.service?",
		"explain job":                   "did you mean batch.slice/job.service?",
		"explain something-else":        "tenon status -o json lists the workloads",
		"explain batch.slice cpu.wight": "did you mean batch.slice cpu.weight?",
	} {
		if _, err := see(t, dir, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("tenon %s: %v", args, err)
		}
	}
}

// TestAShellOffersTheWorkloadsOfTenond asks as a shell does.
func TestAShellOffersTheWorkloadsOfTenond(t *testing.T) {
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"__complete", "explain", "--state-dir", agentAt(t), ""})
	err := root.ExecuteContext(t.Context())
	for _, want := range []string{"isolation\n", "system.slice/web.service\n", ":4\n"} {
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, want %q in\n%s", err, want, &out)
		}
	}
}

func TestIsolationIsChosenByHandFromTheCommandLine(t *testing.T) {
	dir := agentAt(t)
	for _, c := range []struct{ args, want, fault string }{
		{args: "isolation show", want: "cpu.idle    yes       in use"},
		{args: "isolation show -o json", want: `"mechanism": "cpu.idle"`},
		{args: "isolation set core_sched", fault: "this node does not support core_sched: no core_sched here"},
		{args: "isolation set strongest", fault: "this node supports no mechanism above cpu.idle: vendor: no vendor here; sched_ext"},
		{args: "isolation set weight", want: "weight is in use: the strongest that this node supports (pinned by hand"},
		{args: "isolation show", want: "pinned     weight, by hand: tenon isolation auto"},
		{args: "isolation set cpu.idle", want: "cpu.idle is in use: the strongest that this node supports (pinned by hand"},
		{args: "isolation set cpu.idle -o json", want: `"by_hand": true`},
		{args: "isolation auto", want: "(the configuration leaves the choice to tenond)"},
		{args: "status", want: "isolation  cpu.idle"},
	} {
		got, err := see(t, dir, strings.Fields(c.args)...)
		switch {
		case c.fault == "" && (err != nil || !strings.Contains(got, c.want)):
			t.Errorf("tenon %s: %q is not in\n%s%v", c.args, c.want, got, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("tenon %s: %s%v", c.args, got, err)
		}
	}
}

func TestACaptureReplays(t *testing.T) {
	dir := t.TempDir()
	r, err := record.Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	var st policy.State
	for second := range 3 {
		tick := record.Tick{Tick: agentTick(second), Before: st}
		st, tick.Wants = policy.Decide(tick.Config, st, tick.Snapshot)
		if second == 2 {
			tick.Wants[0].Reason = "something else"
		}
		if err := r.Record(tick); err != nil {
			t.Fatal(err)
		}
	}
	files := t.TempDir()
	file, on := filepath.Join(files, "capture.gz"), filepath.Join(files, "on.yaml")
	if out, err := see(t, dir, "capture", file); err != nil || !strings.Contains(out, ": 3 ticks") {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := see(t, dir, "capture", file); !errors.Is(err, os.ErrExist) {
		t.Errorf("an existing file was overwritten: %s, %v", out, err)
	}
	out, err := see(t, dir, "replay", file)
	var status exitStatus
	if !errors.As(err, &status) || status != cmdline.ExitFailure || !strings.Contains(out, "Replay: 1 of 3 ticks differ") {
		t.Errorf("%s, %v", out, err)
	}
	text := "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nresource-qos-config: {policies: {cpuIsolation: strongest}, beClass: {cpuQOS: {enable: true}}}\n"
	if err := os.WriteFile(on, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = see(t, dir, "replay", file, "--config", on)
	if err != nil || !strings.Contains(out, "With this configuration: 3 of 3 ticks differ") || !strings.Contains(out, "batch.slice cpu.weight") {
		t.Errorf("%s, %v", out, err)
	}
}
