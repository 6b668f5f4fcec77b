package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

func narrow(reason string) plan.Step {
	return plan.Step{
		Knob: node.Knob{Cgroup: "be", File: node.FileCPUMax},
		From: node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}, To: node.Limit(1500),
		Owner: plan.OwnerSuppress, Reason: reason,
	}
}

// tickWith returns a tick of a machine that has slept for an hour. In that time
// the clock of snapshots stops.
func tickWith(outcomes ...tick.Outcome) tick.Tick {
	begun := time.Unix(1700000000, 0).UTC()
	return tick.Tick{Begun: begun, Snapshot: node.Snapshot{At: begun.Add(-time.Hour)}, Done: outcomes}
}

func auditLines(t *testing.T, dir string) []Write {
	t.Helper()
	var all []Write
	for _, name := range []string{AuditFileOld, AuditFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var w Write
			if err := json.Unmarshal(line, &w); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all = append(all, w)
		}
	}
	return all
}

func TestEveryWriteIsInTheAuditLog(t *testing.T) {
	dir := t.TempDir()
	a := OpenAudit(dir, 0, func(err error) { t.Error(err) })
	a.Record(tickWith(tick.Outcome{Step: narrow("65% of 4000m")}))
	a.Record(tickWith()) // a tick without writes
	blind := narrow("lower still")
	blind.From, blind.Release = nil, true
	a.Record(tickWith(tick.Outcome{Step: blind}))
	a.Close()
	text, err := os.ReadFile(filepath.Join(dir, AuditFile))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"at":"2023-11-14T22:13:20Z","by":"suppress","cgroup":"be","file":"cpu.max","old":"max 100000","new":"150000 100000","why":"65% of 4000m","outcome":"applied"}
{"at":"2023-11-14T22:13:20Z","by":"suppress","cgroup":"be","file":"cpu.max","old":"?","new":"150000 100000","why":"lower still","release":true,"outcome":"applied"}
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestAFailureThatRepeatsIsOneLine(t *testing.T) {
	dir := t.TempDir()
	a := OpenAudit(dir, 0, func(err error) { t.Error(err) })
	for i := range 10 {
		s := narrow(fmt.Sprintf("65%% of 4000m - %dm", i)) // the reason differs in every turn
		a.Record(tickWith(tick.Outcome{Step: s, Err: fmt.Errorf("apply %v: %w", s, errors.New("read-only file system"))}))
	}
	s := narrow("x")
	a.Record(tickWith(tick.Outcome{Step: s, Err: fmt.Errorf("apply %v: %w", s, errors.New("device busy"))}))
	a.Record(tickWith(tick.Outcome{Step: s}))
	a.Record(tickWith(tick.Outcome{Step: s}))
	a.Close()
	var got []string
	for _, w := range auditLines(t, dir) {
		got = append(got, fmt.Sprint(w.Outcome, " ", w.Error, " ", w.Repeated))
	}
	want := "failed read-only file system 0|failed device busy 9|applied  0|applied  0"
	if strings.Join(got, "|") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, "|"), want)
	}
}

func TestTheAuditLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	const size = 4 << 10
	a := OpenAudit(dir, size, func(err error) { t.Error(err) })
	for i := range 300 {
		for len(a.queue) == cap(a.queue) {
			time.Sleep(time.Millisecond)
		}
		a.Record(tickWith(tick.Outcome{Step: narrow(fmt.Sprint("reason ", i))}))
	}
	a.Close()
	lines := auditLines(t, dir)
	if last := lines[len(lines)-1]; last.Why != "reason 299" {
		t.Errorf("the last line is %+v", last)
	}
	for _, name := range []string{AuditFile, AuditFileOld} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() > size {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// TestALogThatCannotBeWrittenIsOneError checks that several failed writes of
// the log cause one error. The log must later tell how many ticks are lost.
func TestALogThatCannotBeWrittenIsOneError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	complaints := make(chan error, 100)
	a := OpenAudit(dir, 0, func(err error) { complaints <- err })
	for range 5 {
		a.Record(tickWith(tick.Outcome{Step: narrow("lost")}))
	}
	for len(a.queue) > 0 {
		time.Sleep(time.Millisecond)
	}
	<-complaints
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a.Record(tickWith(tick.Outcome{Step: narrow("kept")}))
	a.Close()
	if len(complaints) > 0 {
		t.Errorf("more than one complaint: %v", <-complaints)
	}
	lines := auditLines(t, dir)
	if last := lines[len(lines)-1]; last.Why != "kept" || lines[0].Lost == 0 {
		t.Errorf("%+v", lines)
	}
}
