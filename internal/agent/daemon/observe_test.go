package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/agent/workers"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/shadow"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// A playback is a node that shows the snapshots of a record, and refuses all writes.
type playback struct {
	t         *testing.T
	snapshots []node.Snapshot
}

func (p *playback) Snapshot(context.Context) (node.Snapshot, error) {
	s := p.snapshots[0]
	p.snapshots = p.snapshots[1:]
	return s, nil
}

func (p *playback) Apply(_ context.Context, s plan.Step) error {
	p.t.Errorf("an observer performs %v", s)
	return nil
}

func (p *playback) Guard() error {
	p.t.Error("an observer repairs the node")
	return nil
}

// capturedFrom returns the record in a state directory.
func capturedFrom(t *testing.T, dir string) []byte {
	t.Helper()
	var capture bytes.Buffer
	if _, err := record.Capture(dir, &capture); err != nil {
		t.Fatal(err)
	}
	return capture.Bytes()
}

// recordTicks makes ticks of an agent, and records them in dir.
func recordTicks(t *testing.T, dir string, n int, a *loop.Agent, after func()) {
	t.Helper()
	d := openShow(Options{StateDir: dir, Log: slog.New(slog.DiscardHandler)}, health.New(slog.New(slog.DiscardHandler)))
	for range n {
		before := a.State()
		turn, err := a.Step(t.Context())
		d.tick(turn, err, a.Config, before, a.Period)
		if d.failed != "" {
			t.Fatal(d.failed)
		}
		after()
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
}

// TestTheShadowIsTheReplay records half an hour of an agent that acts on a busy node.
// Another configuration decides about it in two ways: tenon replay --config, and the loop
// of an agent that observes, as if the snapshots came from a node. Both must make the same
// steps. The record of the observer then replays step by step, and the audit log, which
// has what was written, is empty.
func TestTheShadowIsTheReplay(t *testing.T) {
	const ticks = 1800
	acted, observed := t.TempDir(), t.TempDir()
	other := policy.Config{}
	synctest.Test(t, func(t *testing.T) {
		n := newBusyNode(t)
		other = n.config
		n.agent = &loop.Agent{Host: n, Config: n.config, Period: time.Second, MaxSteps: maxSteps}
		recordTicks(t, acted, ticks, n.agent, func() {
			for len(n.wake) > 0 {
				<-n.wake // the events would start ticks, which a replay cannot
			}
			time.Sleep(time.Second)
		})
	})
	other.Suppress.ThresholdPercent = 40
	other.Evict.Memory.ThresholdPercent = 60
	other.Evict.Memory.LowerPercent = 50
	other = shadow.Config(other)
	capture := capturedFrom(t, acted)
	replayed, err := record.Replay(bytes.NewReader(capture), &other)
	if err != nil || replayed.Ticks != ticks || replayed.ReplayedSteps < 100 || replayed.Differ == 0 {
		t.Fatalf("%v\n%v", err, replayed)
	}

	p := &playback{t: t}
	var state policy.State
	if err := record.Ticks(bytes.NewReader(capture), func(r record.Tick) {
		if len(p.snapshots) == 0 {
			state = r.Before
		}
		p.snapshots = append(p.snapshots, r.Snapshot)
	}); err != nil {
		t.Fatal(err)
	}
	a := &loop.Agent{Host: p, Config: other, Period: time.Second, MaxSteps: maxSteps, Shadow: new(shadow.World)}
	a.Resume(state)
	recordTicks(t, observed, ticks, a, func() {})
	if got := a.Shadow.Steps(); !maps.Equal(got, replayed.StepsOfPolicies) {
		t.Errorf("the shadow makes the steps %v, the replay %v", got, replayed.StepsOfPolicies)
	}
	r, err := record.Replay(bytes.NewReader(capturedFrom(t, observed)), nil)
	if err != nil || !r.Identical() || !r.Observed || r.Ticks != ticks || r.RecordedSteps != replayed.ReplayedSteps || r.ReplayedSteps != r.RecordedSteps {
		t.Errorf("the record of the observer: %v\n%v", err, r)
	}
	if again, err := record.Replay(bytes.NewReader(capture), nil); err != nil || again.Observed {
		t.Errorf("the record of an agent that acts is that of an observer: %v", err)
	}
}

// TestAnObserverRefusesANodeThatIsNotAsItWas has a change of an earlier tenond in the
// journal.
func TestAnObserverRefusesANodeThatIsNotAsItWas(t *testing.T) {
	dir, fs := t.TempDir(), proc.Default()
	if err := refuseInForce(dir, fs, false); err != nil {
		t.Fatalf("without a journal: %v", err)
	}
	boot, err := fs.BootID()
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir, boot, journal.Session{PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.RecordGroup("tenon/be/job"); err != nil {
		t.Fatal(err)
	}
	for inCluster, way := range map[bool]string{false: "run tenon restore --state-dir " + dir, true: "run helm rollback and then helm uninstall"} {
		if err := refuseInForce(dir, fs, inCluster); !errors.Is(err, errInForce) || !strings.Contains(err.Error(), way) {
			t.Errorf("with a change in force, in a cluster %v: %v", inCluster, err)
		}
	}
}

// TestAnObserverNamesTheTenonThatRuns has changes of a process that runs, this one. A
// restore would harm it, so the error must not ask for one.
func TestAnObserverNamesTheTenonThatRuns(t *testing.T) {
	fs := proc.Default()
	boot, err := fs.BootID()
	if err != nil {
		t.Fatal(err)
	}
	self, err := change.Identify(fs, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for lab, name := range map[bool]string{true: "an experiment of tenon lab", false: "tenon run"} {
		dir := t.TempDir()
		j, err := journal.Open(dir, boot, journal.Session{PID: self.PID, Start: self.Start, Lab: lab})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.RecordGroup("tenon/be/job"), j.Close()); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%s (process %d)", name, self.PID)
		if err := refuseInForce(dir, fs, false); !errors.Is(err, errInForce) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "restore") {
			t.Errorf("beside %s: %v", name, err)
		}
	}
}

// TestAnObserverKeepsItsHistory checks where, and that a reload does not make an agent
// that acts an observer.
func TestAnObserverKeepsItsHistory(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		observes, asks bool
		dir, want      string
		trouble        bool
	}{
		{observes: true, want: config.HistoryDirectory},
		{observes: true, dir: "/srv/history", want: "/srv/history"},
		{asks: true, trouble: true},
		{},
	} {
		d := &daemon{Options: Options{Observe: c.observes, Log: log}, health: health.New(log)}
		d.setConfig(config.Config{Observe: c.asks, History: config.History{Directory: c.dir}})
		if got := d.config.History.Directory; got != c.want || d.Observe != c.observes {
			t.Errorf("%+v: the history is in %q", c, got)
		}
		if got := len(d.health.Texts(health.Config)) > 0; got != c.trouble {
			t.Errorf("%+v: trouble: %v", c, got)
		}
	}
}

// TestAnOnlookerChangesNothing asks through the socket's handlers.
func TestAnOnlookerChangesNothing(t *testing.T) {
	desk, err := workers.Open(t.TempDir(), proc.Default(), slog.New(slog.DiscardHandler), func(tick.Event) { t.Error("a request wakes the loop") })
	if err != nil {
		t.Fatal(err)
	}
	o := onlooker{desk}
	if err := o.Pin(t.Context(), node.MechanismSchedExt); !errors.Is(err, errObserves) {
		t.Errorf("a pinned mechanism: %v", err)
	}
	mux := http.NewServeMux()
	o.Handle(mux)
	for method, want := range map[string]int{http.MethodGet: http.StatusOK, http.MethodPost: http.StatusBadRequest} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/v1/slices", strings.NewReader(url.Values{"name": {"a"}, "cpus": {"2"}}.Encode()))
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		body, err := io.ReadAll(w.Body)
		if w.Code != want || err != nil || !json.Valid(body) {
			t.Errorf("%s: %d %s, %v", method, w.Code, body, err)
		}
	}
}

// TestADaemonDoesNotActAgainstItsConfiguration starts a daemon that was told to act, because
// the file could not be read at first. Then the file asks it to observe.
func TestADaemonDoesNotActAgainstItsConfiguration(t *testing.T) {
	file, state := filepath.Join(t.TempDir(), "tenon.yaml"), filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, []byte("apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nobserve: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	err := Run(ctx, Options{Config: file, StateDir: state, Log: slog.New(slog.DiscardHandler), Ready: func() { t.Error("it acts"); stop() }})
	if !errors.Is(err, errMustObserve) || !strings.Contains(err.Error(), file) {
		t.Errorf("the daemon ends with %v", err)
	}
	if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has made a state directory: %v", err)
	}
}
