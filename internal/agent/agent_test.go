package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/policy"
	"tenon.sh/tenon/internal/tick"
	"tenon.sh/tenon/internal/unit"
)

// memory is a host that keeps knobs in a map and refuses what it is told to.
type memory struct {
	snap   node.Snapshot
	refuse map[node.Knob]error
	blind  error
	writes int
}

func (m *memory) Snapshot(context.Context) (node.Snapshot, error) {
	m.snap.At = m.snap.At.Add(time.Second)
	return m.snap, m.blind
}

func (m *memory) Apply(_ context.Context, s plan.Step) error {
	if err := m.refuse[s.Knob]; err != nil {
		return err
	}
	m.writes++
	m.snap.Knobs.Now[s.Knob] = s.To
	return nil
}

var beWeight = node.Knob{Cgroup: "be", File: node.FileCPUWeight}

func colocated() *memory {
	weight := node.CPUWeight{Weight: unit.WeightOf(100)}
	return &memory{snap: node.Snapshot{
		At:  time.Unix(0, 0),
		Can: node.Capabilities{node.MechCPUIdle: {Verdict: node.Yes}},
		Workloads: []node.Workload{
			{ID: "web", Class: node.LS, Cgroup: "ls/web", Meet: "ls"},
			{ID: "job", Class: node.BE, Cgroup: "be/job", Meet: "be", CPULimit: node.Some(unit.MilliCPU(500))},
		},
		Knobs: node.Knobs{Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096}, Now: map[node.Knob]node.Value{beWeight: weight}},
	}}
}

func TestStepWritesWhatIsWantedOnce(t *testing.T) {
	h := colocated()
	a := Agent{Host: h, Config: policy.Config{CPUQOS: policy.CPUQOS{Enable: true}}}
	first, err := a.Step(t.Context())
	if err != nil || len(first.Done) != 2 || h.snap.Knobs.Now[beWeight] != (node.CPUWeight{Idle: true}) {
		t.Fatalf("%v, %v", first, err)
	}
	second, err := a.Step(t.Context())
	if err != nil || len(second.Done) != 0 || h.writes != 2 {
		t.Errorf("a second turn wrote again: %v, %v", second, err)
	}
}

func TestDryRunPlansTheSameAndWritesNothing(t *testing.T) {
	h := colocated()
	dry, err := (&Agent{Host: h, Config: policy.Config{CPUQOS: policy.CPUQOS{Enable: true}}, DryRun: true}).Step(t.Context())
	if err != nil || h.writes != 0 {
		t.Fatalf("%d writes, %v", h.writes, err)
	}
	wet, err := (&Agent{Host: h, Config: policy.Config{CPUQOS: policy.CPUQOS{Enable: true}}}).Step(t.Context())
	if err != nil || dry.String() != wet.String() {
		t.Errorf("dry run:\n%s\nreal run:\n%s%v", dry, wet, err)
	}
}

func TestARefusedWriteIsReportedAndTheOthersGoOn(t *testing.T) {
	h := colocated()
	refused := errors.New("invalid argument")
	h.refuse = map[node.Knob]error{beWeight: refused}
	got, err := (&Agent{Host: h, Config: policy.Config{CPUQOS: policy.CPUQOS{Enable: true}}}).Step(t.Context())
	if !errors.Is(err, refused) || h.writes != 1 || len(got.Done) != 2 {
		t.Errorf("%v\n%v, %d writes", err, got, h.writes)
	}
}

func TestAnUnreadableNodeIsAnErrorWithoutWrites(t *testing.T) {
	h := colocated()
	h.blind = errors.New("gone")
	if _, err := (&Agent{Host: h, Config: policy.Config{CPUQOS: policy.CPUQOS{Enable: true}}}).Step(t.Context()); !errors.Is(err, h.blind) || h.writes != 0 {
		t.Errorf("%v, %d writes", err, h.writes)
	}
}

func TestRunTurnsUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begun, turns := time.Now(), 0
		err := (&Agent{Host: colocated(), Period: time.Second}).Run(ctx, nil, func(tick.Tick, error) {
			if turns++; turns == 3 {
				stop()
			}
		})
		if took := time.Since(begun); !errors.Is(err, context.Canceled) || turns != 3 || took != 2*time.Second {
			t.Errorf("%d turns in %v, %v", turns, took, err)
		}
	})
}

func TestAnEventTurnsTheLoopAtOnceAndAStormSharesATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		wake := make(chan struct{}, 1)
		var at []time.Duration
		begun := time.Now()
		go func() {
			time.Sleep(300 * time.Millisecond)
			for range 100 {
				select {
				case wake <- struct{}{}:
				default:
				}
				time.Sleep(time.Millisecond)
			}
		}()
		_ = (&Agent{Host: colocated(), Period: time.Minute}).Run(ctx, wake, func(tick.Tick, error) {
			if at = append(at, time.Since(begun)); time.Since(begun) > time.Second {
				stop()
			}
		})
		// One turn at the start, one at the first event, one each minGap of
		// the storm of 100 ms, and the next when the period has passed.
		if len(at) < 3 || at[0] != 0 || at[1] != 300*time.Millisecond {
			t.Fatalf("turns at %v", at)
		}
		if storm := len(at) - 2; storm > int(100*time.Millisecond/minGap)+1 {
			t.Errorf("%d turns in a storm of 100 ms: %v", storm, at)
		}
	})
}
