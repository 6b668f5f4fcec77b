package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A day is a node of 16 CPUs with a service whose use changes with the hour. The name of the
// service is not UTF-8.
type day struct {
	at          time.Time
	web, system time.Duration
}

const webID node.WorkloadID = "web/\xff"

// observe lets time pass, which agents observe. From 8 to 12 o'clock the service uses 6 CPUs
// and 12 GiB, and otherwise 1 CPU and 3 GiB. The system uses 2 CPUs then, and otherwise half
// a CPU.
func (d *day) observe(every time.Duration, agents ...*overcommit.State) {
	d.at = d.at.Add(every)
	web, system, memory := time.Second, 500*time.Millisecond, unit.Bytes(3<<30)
	if hour := d.at.UTC().Hour(); hour >= 8 && hour < 12 {
		web, system, memory = 6*time.Second, 2*time.Second, 12<<30
	}
	d.web += web * (every / time.Second)
	d.system += system * (every / time.Second)
	s := node.Snapshot{
		At: d.at, MemoryTotal: node.Some(unit.Bytes(64 << 30)), Busy: map[unit.CPU]time.Duration{},
		Usage:     node.Usage{Memory: node.Some(memory + 1<<30)},
		Workloads: []node.Workload{{ID: webID, Class: node.LS, CPURequest: node.Some(unit.CPUs(2)), MemoryRequest: node.Some(unit.Bytes(4 << 30)), Usage: node.Usage{CPU: node.Some(d.web), Memory: node.Some(memory)}}},
	}
	for cpu := range unit.CPU(16) {
		s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: cpu, Core: node.CoreID(cpu)})
		s.Busy[cpu] = (d.web + d.system) / 16
	}
	for _, a := range agents {
		*a = a.Observe(predicting, facts.NodeCPUs{}, every, s)
	}
}

// predicting is a configuration with peaks, whose cold start is over after some hours.
var predicting = overcommit.Config{
	Enable: true, Window: 5 * time.Minute, Look: time.Minute, DegradeAfter: 15 * time.Minute, RenewAfter: 5 * time.Minute,
	CPU: overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, Memory: overcommit.Reclaim{ThresholdPercent: 65, Policy: overcommit.ByUsage},
	Peak: overcommit.PeakPrediction{Enable: true, MarginPercent: 10, ColdStart: 6 * time.Hour},
}

// learn runs an agent from midnight to the evening. It saves what it learns.
func learn(p *peaks) (st overcommit.State, d *day) {
	d = &day{at: time.Unix(1_700_006_400, 0)}
	for range 20 * 60 {
		d.observe(time.Minute, &st)
		p.tick(st.Demand.Peaks)
	}
	return st, d
}

// TestAKilledAgentKnowsThePeaks kills an agent at night, and starts the next one. As soon as
// that has measured the use once, its amounts are those of an agent that was not killed.
func TestAKilledAgentKnowsThePeaks(t *testing.T) {
	dir, fs, log := t.TempDir(), proc.Default(), slog.New(slog.DiscardHandler)
	kept, d := learn(openPeaks(dir, fs, log))
	resumed := func() overcommit.State {
		d := &daemon{Options: Options{StateDir: dir, Log: log}, agent: new(loop.Agent)}
		d.resume(fs)
		return d.agent.State().Batch
	}
	next, blank := resumed(), overcommit.State{}
	for range 2 {
		d.observe(time.Second, &kept, &next, &blank)
	}
	want, got, without := kept.Offer, next.Offer, blank.Offer
	if got.CPU.Formula != want.CPU.Formula || got.Memory.Formula != want.Memory.Formula {
		t.Errorf("the next agent computes %v and %v, and one that was not killed %v and %v", got.CPU.Formula, got.Memory.Formula, want.CPU.Formula, want.Memory.Formula)
	}
	if want.CPU.Formula > 1000 || without.CPU.Formula < 5000 || without.Memory.Formula <= want.Memory.Formula {
		t.Errorf("with the peaks of the morning %v and %v, without them %v and %v: they must differ", want.CPU.Formula, want.Memory.Formula, without.CPU.Formula, without.Memory.Formula)
	}
	// What is learnt on goes into the same histories.
	watched := next.Demand.Peaks.Watched()
	for range 61 {
		d.observe(time.Second, &next)
	}
	if got := next.Demand.Peaks.Watched() - watched; got < time.Minute || got > 2*time.Minute {
		t.Errorf("in a minute the next agent watched for %v", got)
	}
	// The state of an agent that ended in order is newer than the file.
	now, err := uptime()
	if err != nil {
		t.Fatal(err)
	}
	if err := saveState(dir, fs, now, policy.State{Batch: next}, nil); err != nil {
		t.Fatal(err)
	}
	if got := resumed(); got.Demand.Peaks.Watched() != next.Demand.Peaks.Watched() || !got.Demand.Began {
		t.Errorf("after an end in order, peaks of %v are known, want those of %v", got.Demand.Peaks.Watched(), next.Demand.Peaks.Watched())
	}
}

// TestAnObserverKnowsThePeaks starts one that observes after one that acted, and after one
// that observed. It goes on with the peaks of the second one only, and the next one that
// acts with those of the first one only.
func TestAnObserverKnowsThePeaks(t *testing.T) {
	dir, fs, log := t.TempDir(), proc.Default(), slog.New(slog.DiscardHandler)
	watched := func(observes bool) (overcommit.Peaks, *peaks) {
		d := &daemon{Options: Options{StateDir: dir, Observe: observes, Log: log}, agent: new(loop.Agent)}
		d.resume(fs)
		return d.agent.State().Batch.Demand.Peaks, d.peaks
	}
	learn(openPeaks(dir, fs, log))
	none, own := watched(true)
	if err := statedir.Make(observerDir(dir)); err != nil || none.Watched() != 0 {
		t.Fatalf("the first one that observes knows peaks of %v, %v", none.Watched(), err)
	}
	acted, err := os.ReadFile(filepath.Join(dir, statedir.PeaksFile))
	if err != nil {
		t.Fatal(err)
	}
	learnt, _ := learn(own)
	if got, _ := watched(true); got.Watched() == 0 || got.Watched() != learnt.Demand.Peaks.Watched() {
		t.Errorf("the next one that observes knows peaks of %v, want those of %v", got.Watched(), learnt.Demand.Peaks.Watched())
	}
	if now, err := os.ReadFile(filepath.Join(dir, statedir.PeaksFile)); err != nil || string(now) != string(acted) {
		t.Errorf("one that observes has written the file of one that acts: %v", err)
	}
}

// TestAFileOfPeaksThatCannotBeUsedIsRefusedByItsName changes the file of a killed agent.
func TestAFileOfPeaksThatCannotBeUsedIsRefusedByItsName(t *testing.T) {
	dir, fs := t.TempDir(), proc.Default()
	p := openPeaks(dir, fs, slog.New(slog.DiscardHandler))
	learn(p)
	text, err := statedir.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(change func(*savedPeaks)) []byte {
		var s savedPeaks
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		s = printable.Unquote(s, text)
		change(&s)
		again, err := printable.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	for name, c := range map[string]struct {
		text []byte
		why  error // nil: any
	}{
		"torn":             {text[:len(text)/2], nil},
		"empty":            {nil, nil},
		"another form":     {changed(func(s *savedPeaks) { s.Version-- }), errOtherForm},
		"another boot":     {changed(func(s *savedPeaks) { s.Boot = "00000000-0000-0000-0000-000000000000" }), errOtherBoot},
		"of the future":    {changed(func(s *savedPeaks) { s.Uptime += time.Hour }), errOtherBoot},
		"too old":          {changed(func(s *savedPeaks) { s.Uptime -= 31 * time.Minute }), errTooOld},
		"a bucket of none": {changed(func(s *savedPeaks) { s.Peaks.Past[webID].CPU.Buckets[0][0] = 1 << 20 }), nil},
		"a weight of none": {changed(func(s *savedPeaks) { s.Peaks.Past[webID].Memory.Buckets[0][1] = -1 }), nil},
	} {
		if err := os.WriteFile(p.file, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.load(); err == nil || c.why != nil && !errors.Is(err, c.why) {
			t.Errorf("%s: %v, want %v", name, err, c.why)
		}
		var said strings.Builder
		learnt := openPeaks(dir, fs, slog.New(slog.NewTextHandler(&said, nil))).earlier()
		if len(learnt.Past) > 0 || !strings.Contains(said.String(), p.file) {
			t.Errorf("%s: %d histories; the log says %q", name, len(learnt.Past), said.String())
		}
		if _, err := os.Stat(p.file); !os.IsNotExist(err) {
			t.Errorf("%s: the file is still there (%v)", name, err)
		}
	}
	// A service that has ended loses its history when it is too old, as in an agent that runs.
	if err := os.WriteFile(p.file, changed(func(s *savedPeaks) { s.Uptime -= 29 * time.Minute }), 0o600); err != nil {
		t.Fatal(err)
	}
	if learnt, err := p.load(); err != nil || len(learnt.Past) != 2 || learnt.Past[webID].Gone < 29*time.Minute {
		t.Errorf("after 29 minutes: %d histories, ended %v ago: %v", len(learnt.Past), learnt.Past[webID].Gone, err)
	}
}

// TestPeaksThatCannotBeSavedAreNamedOnce removes the state directory.
func TestPeaksThatCannotBeSavedAreNamedOnce(t *testing.T) {
	var said strings.Builder
	dir := filepath.Join(t.TempDir(), "gone")
	learn(openPeaks(dir, proc.Default(), slog.New(slog.NewTextHandler(&said, nil))))
	if n := strings.Count(said.String(), "the peaks of other work"); n != 1 {
		t.Errorf("%d lines in the log, want 1:\n%s", n, said.String())
	}
}

// BenchmarkSavePeaks measures what saving costs after a day of restless load, and how large
// the file is.
func BenchmarkSavePeaks(b *testing.B) {
	for _, workloads := range []int{100, 1000} {
		b.Run(fmt.Sprintf("workloads=%d", workloads), func(b *testing.B) {
			p := openPeaks(b.TempDir(), proc.Default(), slog.New(slog.DiscardHandler))
			rnd := rand.New(rand.NewPCG(1, 1))
			var st overcommit.State
			var s node.Snapshot
			for i := range workloads {
				s.Workloads = append(s.Workloads, node.Workload{ID: node.WorkloadID(fmt.Sprintf("kubepods/burstable/pod%032d", i)), Class: node.LS})
			}
			for range 24 * 60 {
				for i := range s.Workloads {
					u := &s.Workloads[i].Usage
					u.CPU = node.Some(u.CPU.Or(0) + time.Duration(rnd.ExpFloat64()*float64(6*time.Second)))
					u.Memory = node.Some(unit.Bytes(rnd.ExpFloat64()*1000) << 20)
				}
				st = st.Observe(predicting, facts.NodeCPUs{}, time.Minute, s)
			}
			spent := proc.OwnCPUTime()
			b.ReportAllocs()
			for b.Loop() {
				if err := p.save(st.Demand.Peaks); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(proc.OwnCPUTime()-spent)/float64(b.N), "cpu-ns/op")
			info, err := os.Stat(p.file)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(info.Size()), "B/file")
		})
	}
}
