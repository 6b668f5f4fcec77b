package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// tickAt returns a tick with room for batch work.
func tickAt(at time.Time, cpu unit.MilliCPU, memory unit.Bytes) tick.Tick {
	return tick.Tick{
		Begun: at, Snapshot: node.Snapshot{At: at},
		Batch: node.Batch{CPU: node.Amount[unit.MilliCPU]{Value: cpu, Policy: "usage"}, Memory: node.Amount[unit.Bytes]{Value: memory, Policy: "usage"}},
	}
}

// TestTicksBecomePromises runs a daemon for four days with three ticks a minute, of
// which one has less room, and another daemon after it.
func TestTicksBecomePromises(t *testing.T) {
	dir := t.TempDir()
	p := openPromises(dir, "", time.Unix(1_700_006_400, 0), slog.New(slog.DiscardHandler))
	at := time.Unix(1_700_006_400, 0) // a full hour
	var last []promise.Promise
	for range 4 * 24 * 60 {
		for i, cpu := range []unit.MilliCPU{6000, 4000, 5000} {
			last = p.tick(tickAt(at.Add(time.Duration(i)*20*time.Second), cpu, 8<<30))
		}
		at = at.Add(time.Minute)
	}
	if len(last) == 0 || last[0].CPU.Code != promise.Known || last[0].CPU.Value != 4000 || last[0].Memory.Value != 8<<30 {
		t.Fatalf("the least room of each minute was 4000m, and the first promise is %+v", last)
	}
	if long := last[len(last)-1]; long.CPU.Code != promise.TooFew || long.CPU.Windows >= long.CPU.Needed {
		t.Errorf("four days are too few for a day: %+v", long)
	}
	lower := p.tick(tickAt(at, 3000, 8<<30))
	if lower[0].CPU.Value != 3000 {
		t.Errorf("the room of now is 3000m, and %v are promised", lower[0].CPU.Value)
	}
	degraded := tickAt(at.Add(time.Second), 3000, 8<<30)
	degraded.Batch.CPU.Degraded = "the use of the CPUs is unknown"
	if got := p.tick(degraded)[0]; got.CPU.Code != promise.Unmeasured || got.CPU.Value != 0 || got.Memory.Code != promise.Known {
		t.Errorf("without an input: %+v", got)
	}
	if got := p.tick(tick.Tick{Begun: at, Snapshot: node.Snapshot{At: at}}); got != nil {
		t.Errorf("without batch resources: %+v", got)
	}
	p.save()

	next := openPromises(dir, "", time.Unix(1_700_006_400, 0), slog.New(slog.DiscardHandler))
	if got := next.tick(tickAt(at.Add(time.Minute), 5000, 8<<30))[0].CPU; got.Code != promise.Known || got.Judged == 0 {
		t.Errorf("after a restart: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, statedir.PromisesFile), []byte(`{"cpu":{"seen":-1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := openPromises(dir, "", time.Unix(1_700_006_400, 0), slog.New(slog.DiscardHandler)).tick(tickAt(at, 5000, 8<<30))[0].CPU; got.Code != promise.Unmeasured {
		t.Errorf("from a damaged file: %+v", got)
	}
}

// TestPromisesAreSavedEachHour: a daemon that is killed loses an hour at most.
func TestPromisesAreSavedEachHour(t *testing.T) {
	dir := t.TempDir()
	p := openPromises(dir, "", time.Unix(1_700_006_400, 0), slog.New(slog.DiscardHandler))
	at := time.Unix(1_700_006_400, 0)
	for i := range 121 {
		p.tick(tickAt(at.Add(time.Duration(i)*time.Minute), 5000, 8<<30))
	}
	text, err := statedir.ReadFile(filepath.Join(dir, statedir.PromisesFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := promise.Restore(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CPU.Last; got != at.Unix()/60+119 {
		t.Errorf("the last minute that was saved is %d minutes after the first, want 119", got-at.Unix()/60)
	}
}
