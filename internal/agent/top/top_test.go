package top

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var update = flag.Bool("update", false, "rewrite the screens with the present output")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// status returns the status of a node with the given number of CPUs and some
// workloads.
func status(cpus int) control.Status {
	mcpu := func(n int) node.Maybe[unit.MilliCPU] { return node.Some(unit.MilliCPU(n)) }
	mib := func(n int) node.Maybe[unit.Bytes] { return node.Some(unit.Bytes(n) << 20) }
	s := control.Status{
		Version: "v1", Started: noon.Add(-3 * time.Hour), At: noon, Ticks: 100, Held: 4,
		Took: control.Took{Sense: 400 * time.Microsecond, Decide: 100 * time.Microsecond, Act: 20 * time.Microsecond},
		Node: control.Node{CPUs: cpus, CPU: mcpu(cpus * 850), Memory: mib(3072), MemoryTotal: mib(8192)},
		Classes: []control.Class{
			{Class: node.LS, Workloads: 1, CPU: mcpu(cpus * 250), Memory: mib(1024)},
			{Class: node.BE, Workloads: 2, CPU: mcpu(cpus * 500), Memory: mib(512)},
		},
		Workloads: []control.Workload{
			{ID: "batch.slice/encode-with-a-very-long-name-that-does-not-fit@0001.service", Class: node.BE, Rule: "batch-of-the-night", CPU: mcpu(cpus * 400), Memory: mib(400), Throttled: node.Some[unit.Percent](31), Misfit: &misfit.Misfit{}},
			{ID: "batch.slice/index.service", Class: node.BE, Rule: "batch", CPU: mcpu(cpus * 100), Memory: mib(112), Throttled: node.Some[unit.Percent](0)},
			{ID: "system.slice/web.service", Class: node.LS, Rule: "web", CPU: mcpu(cpus * 250), Memory: mib(1024),
				DelayP99: node.Some(4194304 * time.Nanosecond), Objective: node.Some(2 * time.Millisecond),
				Waits: []control.Wait{{Runner: "batch.slice/index.service", Time: 120 * time.Millisecond}, {Runner: node.RunnerKernel, Time: 1234 * time.Microsecond}}},
			{ID: "user.slice", Class: node.System, Rule: "users"},
		},
	}
	for c := range cpus {
		one := control.CPU{ID: unit.CPU(c), Busy: unit.MilliCPU(c * 137 % 1000)}
		if c == 1 {
			one.Class = map[node.Class]unit.MilliCPU{node.LS: 100}
		}
		s.Node.Busy = append(s.Node.Busy, one)
	}
	quota := node.Knob{Cgroup: "batch.slice", File: node.FileCPUMax}
	s.Bounds = []control.Knob{
		{Knob: quota, Intent: plan.Set, Want: "105000 100000", Policy: "suppress", Reason: "65% of 2000m - 500m in use by others"},
		{Knob: node.Knob{Cgroup: "batch.slice", File: node.FileCPUWeight}, Intent: plan.Set, Want: "idle", Policy: "cpuqos", Reason: "BE runs only where no other work wants the CPU"},
	}
	for i := range 8 {
		woken := ""
		if i == 1 {
			woken = "delay system.slice/web.service: 3 waits of more than 2ms in 50ms"
		}
		s.Recent = append(s.Recent, record.Write{
			At: noon.Add(-time.Duration(i) * time.Second), By: "suppress", Knob: quota, Outcome: record.Applied,
			Old: fmt.Sprint(100000+i*1000, " 100000"), New: fmt.Sprint(99000+i*1000, " 100000"), Why: "65% of 2000m - 500m in use by others", Woken: woken,
		})
	}
	return s
}

// sendAll sends messages to a new model. A string represents a key.
func sendAll(t *testing.T, msgs ...any) model {
	t.Helper()
	var m tea.Model = newModel(func(id node.WorkloadID) (control.Explanation, error) {
		now := "idle"
		return control.Explanation{At: noon, Cgroup: node.CgroupPath(id), Knobs: []control.Knob{{
			Knob: node.Knob{Cgroup: node.CgroupPath(id), File: node.FileCPUWeight}, Now: &now, Intent: plan.Set, Want: "idle", Policy: "cpuqos",
			Reason: "BE runs only where no other work wants the CPU, within a.slice: against work outside, the weight of a.slice decides", Since: noon.Add(-time.Hour),
		}}}, nil
	})
	for _, msg := range msgs {
		var cmd tea.Cmd
		if key, is := msg.(string); is {
			m, cmd = m.(model).key(key)
		} else {
			m, cmd = m.Update(msg)
		}
		if cmd != nil {
			m, _ = m.Update(cmd())
		}
	}
	return m.(model)
}

// TestScreens compares the screens with those in testdata, ignoring colours.
func TestScreens(t *testing.T) {
	failing := status(2)
	failing.Failing = []record.Write{failing.Recent[0]}
	failing.Failing[0].Outcome, failing.Failing[0].Error = record.Failed, "read-only file system"
	empty := status(2)
	empty.Workloads, empty.Classes, empty.Recent, empty.Bounds = nil, nil, nil, nil
	busy, fallen := status(2), status(2)
	busy.Isolation = control.Isolation{
		Mechanism: node.MechanismSchedExt, Since: noon.Add(-182 * time.Second), Strays: 3, Expelled: node.Some[unit.MilliCPU](120), Held: node.Some[unit.MilliCPU](40),
	}
	fallen.Isolation = control.Isolation{Mechanism: node.MechanismIdle, Since: noon.Add(-time.Hour), Pinned: node.MechanismIdle, ByHand: true, Failures: 3}
	missed := status(2)
	for i, w := range missed.Workloads {
		if w.Class == node.System {
			continue
		}
		missed.Workloads[i].Verdict = &verdict.Page{Judgement: slo.Judgement{
			Verdict: slo.Missed, Cause: slo.ForBE, Since: noon.Add(-time.Duration(40+i) * time.Second),
			Waits: slo.Waits{Waited: time.Second, Runners: []slo.Runner{{ID: "batch.slice/index.service", Cause: slo.ForBE, Time: 640 * time.Millisecond}}},
		}}
	}
	missed.Workloads[0].Verdict.Judgement.Verdict = slo.Kept
	blind := status(2)
	blind.Blind = "read the topology: input/output error"
	for name, msgs := range map[string][]any{
		"overview":  {status(2)},
		"one-cpu":   {status(1)},
		"many-cpus": {status(104), tea.WindowSizeMsg{Width: 120, Height: 30}},
		"huge":      {status(1024)},
		"narrow":    {status(2), tea.WindowSizeMsg{Width: 40, Height: 16}},
		"by-memory": {status(2), "s", "down", "down"},
		"by-name":   {status(2), "s", "s", "s"},
		"waits":     {status(2), "w"},
		"help":      {status(2), "?"},
		"explain":   {status(2), "down", "enter"},
		"failing":   {failing},
		"isolated":  {busy},
		"fallen":    {fallen},
		"missed":    {missed},
		"empty":     {empty},
		"blind":     {blind},
		"waiting":   {silence{errors.New("tenond has stopped")}},
		"silent":    {status(2), silence{errors.New("tenond has stopped")}},
	} {
		t.Run(name, func(t *testing.T) {
			m := sendAll(t, msgs...)
			got := ansi.Strip(m.View().Content) + "\n"
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			if len(lines) > m.height {
				t.Errorf("%d lines on a screen of %d", len(lines), m.height)
			}
			for _, l := range lines {
				if ansi.StringWidth(l) > m.width {
					t.Errorf("wider than %d: %s", m.width, l)
				}
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the screen changed (-was +is):\n%s", diff)
			}
		})
	}
}

func TestTheCursorStaysWithItsWorkload(t *testing.T) {
	m := sendAll(t, status(2), "down")
	at := m.at
	next := status(2)
	next.Workloads[1].CPU = node.Some(unit.CPUs(2)) // the last row becomes the first
	n, _ := m.Update(next)
	if m = n.(model); m.at != at || m.cursor() == 1 {
		t.Errorf("the cursor is at %q, row %d", m.at, m.cursor())
	}
	next.Workloads = next.Workloads[:1] // the workload under the cursor ends
	n, _ = m.Update(next)
	if m = n.(model); m.at != next.Workloads[0].ID {
		t.Errorf("the cursor is at %q", m.at)
	}
	next.Workloads = nil
	n, _ = m.Update(next)
	if m = n.(model); m.at != "" {
		t.Errorf("the cursor is at %q", m.at)
	}
}

func TestEveryScreenCanBeLeft(t *testing.T) {
	for _, keys := range [][]any{{"q"}, {"esc"}, {"ctrl+c"}, {"?", "ctrl+c"}, {"?", "q", "q"}, {"enter", "esc", "esc"}} {
		var m tea.Model = sendAll(t, append([]any{status(2)}, keys[:len(keys)-1]...)...)
		_, cmd := m.(model).key(keys[len(keys)-1].(string))
		if cmd == nil {
			t.Errorf("%v does not quit", keys)
			continue
		}
		if _, quit := cmd().(tea.QuitMsg); !quit {
			t.Errorf("%v does not quit", keys)
		}
	}
}

func TestTheWholeHelpCanBeRead(t *testing.T) {
	const last = "o json all."
	if text := sendAll(t, status(2), "?").screen(); !strings.Contains(text, last) || !strings.Contains(text, "any other key: back") {
		t.Errorf("the end of the help is not on a screen of 80x24:\n%s", text)
	}
	msgs := []any{status(2), tea.WindowSizeMsg{Width: 60, Height: 10}, "?"}
	if text := sendAll(t, msgs...).screen(); !strings.Contains(text, "any other key: back") {
		t.Errorf("a small screen does not say how to leave the help:\n%s", text)
	}
	for range strings.Count(helpText, "\n") * 2 {
		msgs = append(msgs, "down")
	}
	msgs = append(msgs, "up", "up", "up") // the last line is on top
	if text := sendAll(t, msgs...).screen(); !strings.Contains(text, last) || strings.Contains(text, "statu…") {
		t.Errorf("the end of the help is not below it:\n%s", text)
	}
	if m := sendAll(t, append(msgs, "x", "?")...); m.scroll != 0 {
		t.Errorf("the help begins at line %d when it is opened again", m.scroll)
	}
}

func TestAnySizeOfTerminalIsDrawn(t *testing.T) {
	for width := range 130 {
		for _, height := range []int{1, 2, 5, 24, 100} {
			for _, s := range []control.Status{status(1), status(9), status(300), {}} {
				m := sendAll(t, s, tea.WindowSizeMsg{Width: width, Height: height})
				if n := strings.Count(m.screen(), "\n") + 1; n > height {
					t.Fatalf("%dx%d: %d lines", width, height, n)
				}
			}
		}
	}
}
