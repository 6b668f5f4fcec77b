package daemon

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/history"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// writeHistory writes the rooms of minutes.
func writeHistory(t testing.TB, dir string, start int64, room func(minute int64) int64, count int) {
	t.Helper()
	s, err := history.Open(dir, 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(count) {
		values := make([]int64, len(history.Columns[history.Node]))
		for c := range values {
			values[c] = history.Absent
		}
		values[history.Column(history.Node, "room_cpu_mcpu")] = room(start + i)
		m := history.Minute{At: start + i}
		m.Rows[history.Node] = []history.Row{{Values: values}}
		if err := s.Append(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// sizedTick returns a tick of a node with 4 CPUs and 8 GiB.
func sizedTick(at time.Time) tick.Tick {
	t := tickAt(at, 1000, 1<<30)
	t.Snapshot.MemoryTotal = node.Some(unit.Bytes(8 << 30))
	t.Snapshot.Topology.CPUs = make([]node.LogicalCPU, 4)
	return t
}

// running returns outlooks whose goroutine runs until the test ends.
func running(t *testing.T, log *slog.Logger) *outlooks {
	t.Helper()
	o := openOutlooks(log)
	o.pause = 0
	ctx, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { o.run(ctx) })
	t.Cleanup(func() { stop(); background.Wait() })
	return o
}

// awaitOutlook calls tick until it returns an outlook that is not this one.
func awaitOutlook(t *testing.T, o *outlooks, at time.Time, to config.History, not *prospect.Outlook) *prospect.Outlook {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if made := o.tick(sizedTick(at), to); made != nil && made != not {
			return made
		}
	}
	t.Fatal("there is no outlook")
	return nil
}

// TestANodeHasAnOutlookForEachHour runs a day of ticks beside a history of four days.
func TestANodeHasAnOutlookForEachHour(t *testing.T) {
	const first = int64(28_333_440) // a full day
	to := config.History{Directory: t.TempDir() + "/history", Size: 32 << 20}
	writeHistory(t, to.Directory, first, func(minute int64) int64 { return 1000 + minute/60%24 }, 5*24*60)
	o := running(t, slog.New(slog.DiscardHandler))
	at := time.Unix((first+4*24*60+30)*60, 0) // half past midnight of the last day
	made := awaitOutlook(t, o, at, to, nil)
	if made.CPU != 4000 || made.Memory != 8<<30 || made.From != first || made.To != first+4*24*60 || made.Hours[5].CPU.Low != 1005 || made.Hours[5].CPU.Steps != 4*60 {
		t.Errorf("%+v", made)
	}
	for minute := range 30 {
		if got := o.tick(sizedTick(at.Add(time.Duration(minute)*time.Minute)), to); got != made {
			t.Fatalf("another outlook after %d minutes, within the hour", minute)
		}
	}
	next := running(t, slog.New(slog.DiscardHandler)) // another daemon
	if again := awaitOutlook(t, next, at.Add(time.Minute), to, nil); !reflect.DeepEqual(again, made) {
		t.Errorf("after a restart:\n%+v\nbefore it:\n%+v", again, made)
	}
	later := awaitOutlook(t, o, at.Add(time.Hour), to, made)
	if later.To != made.To+60 || later.From != made.From {
		t.Errorf("an hour later: %d to %d", later.From, later.To)
	}
	if got := o.tick(sizedTick(at.Add(time.Hour)), config.History{}); got != nil {
		t.Errorf("without a history: %+v", got)
	}
	awaitOutlook(t, o, at.Add(time.Hour), to, nil) // it is switched on again
}

// TestATickDoesNotWaitForAnOutlook ticks for hours while nothing reads the history.
func TestATickDoesNotWaitForAnOutlook(t *testing.T) {
	o := openOutlooks(slog.New(slog.DiscardHandler))
	at := time.Unix(28_333_440*60, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 600 {
			at = at.Add(time.Minute)
			o.tick(sizedTick(at), config.History{Directory: "/nowhere", Size: 1 << 20})
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a tick waits")
	}
}

// TestAHistoryThatCannotBeReadIsNoOutlook: a part of it would be a wrong one. That there
// is no history yet is no fault.
func TestAHistoryThatCannotBeReadIsNoOutlook(t *testing.T) {
	const first = int64(28_333_440)
	var said strings.Builder
	var mutex sync.Mutex
	o := running(t, slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mutex.Lock()
		defer mutex.Unlock()
		return said.Write(p)
	}), nil)))
	to := config.History{Directory: t.TempDir() + "/history", Size: 32 << 20}
	at := time.Unix((first+3*24*60)*60, 0)
	ask := func() {
		t.Helper()
		o.tick(sizedTick(at), to)
		// Two more questions are taken only when this one has been answered.
		for range 2 {
			at = at.Add(time.Hour)
			for deadline := time.Now().Add(20 * time.Second); o.asked != (at.Unix()/60-o.lag)/60; time.Sleep(time.Millisecond) {
				if o.tick(sizedTick(at), to); time.Now().After(deadline) {
					t.Fatal("the questions are not answered")
				}
			}
		}
	}
	if ask(); o.made.Load() != nil || said.Len() > 0 {
		t.Errorf("without a file: %+v, %s", o.made.Load(), said.String())
	}
	if err := os.Mkdir(to.Directory, 0o700); err != nil {
		t.Fatal(err)
	}
	at = at.Add(time.Hour)
	if ask(); o.made.Load() != nil || said.Len() > 0 {
		t.Errorf("with an empty directory: %+v, %s", o.made.Load(), said.String())
	}
	writeHistory(t, to.Directory, first, func(int64) int64 { return 1000 }, 3*24*60)
	made := awaitOutlook(t, o, at.Add(time.Hour), to, nil)
	at = at.Add(time.Hour)
	if made.From != first {
		t.Errorf("%+v", made)
	}
	days, err := os.ReadDir(to.Directory)
	if err != nil || len(days) < 3 {
		t.Fatal(days, err)
	}
	day := to.Directory + "/" + days[1].Name()
	if err := os.Remove(day); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(day, 0o700); err != nil {
		t.Fatal(err)
	}
	at = at.Add(time.Hour)
	ask()
	mutex.Lock()
	defer mutex.Unlock()
	if o.made.Load() != nil || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("with a day that cannot be read: %+v\n%s", o.made.Load(), said.String())
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// BenchmarkSummarizeAWeek is the longest piece of the work without a pause.
func BenchmarkSummarizeAWeek(b *testing.B) {
	n := prospect.Node{CPU: 64_000, Memory: 256 << 30, Step: 1, Start: 28_333_440, Promises: make([]promise.Promise, 9)}
	random := rand.New(rand.NewPCG(1, 2))
	for range 7 * 24 * 60 {
		n.RoomCPU, n.RoomMemory = append(n.RoomCPU, random.Int64N(64_000)), append(n.RoomMemory, random.Int64N(256<<10))
		n.UsedCPU, n.UsedMemory = append(n.UsedCPU, random.Int64N(64_000)), append(n.UsedMemory, random.Int64N(256<<10))
	}
	b.ReportAllocs()
	for b.Loop() {
		if o := prospect.Summarize(n); o.Seen != 7*24*60 {
			b.Fatal(o.Seen)
		}
	}
}
