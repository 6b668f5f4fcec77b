package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/history"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestTheHistoryOutlivesTheMachine writes the minutes of four days, and begins
// promises anew from them, as after a restart of the machine.
func TestTheHistoryOutlivesTheMachine(t *testing.T) {
	to := config.History{Directory: t.TempDir() + "/history", Size: 32 << 20}
	m := openMinutes(slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { m.run(ctx) })
	at := time.Unix(1_700_006_400, 0)
	const count = 4 * 24 * 60
	for range count + 1 {
		for len(m.queue) > 2 { // the disk has a minute for each in truth
			time.Sleep(100 * time.Microsecond)
		}
		m.tick(tickAt(at, 5000, 8<<30), to)
		at = at.Add(time.Minute)
	}
	minutes := 0
	for deadline := time.Now().Add(20 * time.Second); minutes < count && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		minutes = 0
		if _, err := history.Read(to.Directory, 0, 1<<40, func(*history.Minute) error { minutes++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	writing.Wait()
	if minutes != count {
		t.Fatalf("%d minutes are in the history, want %d", minutes, count)
	}
	p := openPromises(t.TempDir(), to.Directory, at, slog.New(slog.DiscardHandler))
	if got := p.tick(tickAt(at, 5000, 8<<30))[0]; got.CPU.Code != promise.Known || got.CPU.Value != 5000 || got.Memory.Value != 8<<30 || got.CPU.Judged == 0 {
		t.Errorf("%+v", got)
	}

	// A damaged file of saved promises, and then a damaged day of the history.
	saved := t.TempDir()
	if err := os.WriteFile(filepath.Join(saved, statedir.PromisesFile), []byte(`{"cpu":{"seen":-1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	if got := openPromises(saved, to.Directory, at, log).tick(tickAt(at, 5000, 8<<30))[0]; got.CPU.Code != promise.Known || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("from a damaged file, with a history: %+v\n%s", got, said.String())
	}
	days, err := filepath.Glob(to.Directory + "/*")
	if err != nil || len(days) < 4 {
		t.Fatal(days, err)
	}
	if err := os.WriteFile(days[1], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	said.Reset()
	openPromises(t.TempDir(), to.Directory, at, log)
	if !strings.Contains(said.String(), filepath.Base(days[1])) || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("from a damaged day: %s", said.String())
	}
	if err := errors.Join(os.Remove(days[2]), os.Mkdir(days[2], 0o700)); err != nil {
		t.Fatal(err)
	}
	if p := openPromises(t.TempDir(), to.Directory, at, log); !strings.Contains(said.String(), "a part of the history only") || p.state.CPU.Last == 0 {
		t.Errorf("from a day that cannot be read: %s", said.String())
	}
	m.tick(tickAt(at.Add(time.Minute), 1, 1), config.History{})
	if len(m.queue) > 0 {
		t.Error("a minute is written without a directory")
	}
}

// TestRowsThatAreLeftOutAreLoggedOnce writes minutes with a name that no file may have.
func TestRowsThatAreLeftOutAreLoggedOnce(t *testing.T) {
	var said strings.Builder
	m := openMinutes(slog.New(slog.NewTextHandler(&said, nil)))
	to := config.History{Directory: t.TempDir(), Size: 32 << 20}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { m.run(ctx) })
	const count = 3
	for i := range int64(count) {
		minute := history.Minute{At: 28_333_440 + i}
		minute.Rows[history.Pair] = []history.Row{{Name: strings.Repeat("a", 5000), Values: []int64{10}}, {Name: "a", Values: []int64{10}}}
		m.queue <- written{minute, to}
	}
	rows := 0
	for deadline := time.Now().Add(20 * time.Second); rows < count && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		rows = 0
		_, err := history.Read(to.Directory, 0, 1<<40, func(m *history.Minute) error { rows += len(m.Rows[history.Pair]); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	stop()
	writing.Wait()
	if rows != count || strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), errRows.Error()) {
		t.Errorf("%d rows, and the log:\n%s", rows, said.String())
	}
}

// BenchmarkHistory measures what the history costs in a tick, with the writer of the file,
// on a node with workloads of which each waits for three others. A tick is a second of the
// node.
func BenchmarkHistory(b *testing.B) {
	for _, workloads := range []int{100, 1000} {
		for name, to := range map[string]config.History{"off": {}, "on": {Directory: b.TempDir(), Size: 32 << 20}} {
			b.Run(fmt.Sprintf("workloads=%d/%s", workloads, name), func(b *testing.B) {
				m := openMinutes(slog.New(slog.DiscardHandler))
				ctx, stop := context.WithCancel(b.Context())
				var writing sync.WaitGroup
				writing.Go(func() { m.run(ctx) })
				t := tickAt(time.Unix(1_700_006_400, 0), 5000, 8<<30)
				rnd := rand.New(rand.NewPCG(1, 1))
				uses := make([]time.Duration, workloads)
				for i := range workloads {
					t.Snapshot.Workloads = append(t.Snapshot.Workloads, node.Workload{ID: node.WorkloadID(fmt.Sprintf("pod-%d", i)), Class: node.LS})
					uses[i] = time.Duration(rnd.ExpFloat64() * float64(100*time.Millisecond))
				}
				for i := range workloads {
					for k := range 3 {
						t.Snapshot.Waits = append(t.Snapshot.Waits, node.Wait{Waiter: t.Snapshot.Workloads[i].ID, Runner: t.Snapshot.Workloads[(i+k+1)%workloads].ID})
					}
				}
				seconds, spent := time.Duration(0), proc.OwnCPUTime()
				b.ReportAllocs()
				for b.Loop() {
					seconds++
					t.Begun = t.Begun.Add(time.Second)
					t.Snapshot.At = t.Begun
					for i := range t.Snapshot.Workloads {
						u := &t.Snapshot.Workloads[i].Usage
						u.CPU = node.Some(seconds * uses[i])
						u.Memory, u.WorkingSet = node.Some(unit.Bytes(uses[i])), node.Some(unit.Bytes(uses[i]))
					}
					for i := range t.Snapshot.Waits {
						t.Snapshot.Waits[i].Time = seconds * uses[i/3] / 100
					}
					m.tick(t, to)
					for len(m.queue) == cap(m.queue) {
						time.Sleep(10 * time.Microsecond) // a minute of the node is enough for the writer
					}
				}
				stop()
				writing.Wait()
				b.ReportMetric(float64(proc.OwnCPUTime()-spent)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
