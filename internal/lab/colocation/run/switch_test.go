package run

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestTheDesignFollowsTheModes(t *testing.T) {
	switched, blocks := colocation.DesignSwitch, colocation.DesignBlocks
	frozen := []report.Mode{report.Frozen, report.Tenon}
	for name, c := range map[string]struct {
		c    Config
		want colocation.Design
	}{
		"nothing is named":             {Config{}, switched},
		"modes that can be switched":   {Config{Modes: []report.Mode{report.Default, report.Tenon}}, switched},
		"the mode frozen":              {Config{Modes: frozen}, switched},
		"a mode that cannot":           {Config{Modes: []report.Mode{report.Exclusive, report.Tenon}}, blocks},
		"a bound by a loop":            {Config{Modes: []report.Mode{report.Default, report.Tenon65}}, blocks},
		"one mode":                     {Config{Modes: []report.Mode{report.Tenon}}, blocks},
		"a number of blocks":           {Config{Setting: testbed.Setting{Blocks: 3}}, blocks},
		"a length of runs":             {Config{Duration: time.Minute}, blocks},
		"a number of starts":           {Config{Starts: 4}, switched},
		"a tenond":                     {Config{Setting: testbed.Setting{Agent: "/bin/true"}}, blocks},
		"wrk":                          {Config{Client: harness.ClientWrk}, blocks},
		"kernel-qos":                   {Config{kernelQOS: true}, blocks},
		"blocks of switchable modes":   {Config{Modes: []report.Mode{report.Default, report.Tenon}, Design: blocks}, blocks},
		"until the claims are decided": {Config{UntilResolved: true}, switched},
		"a cluster":                    {Config{Pods: &Pods{}}, switched},
		"a cluster and its own modes":  {Config{Pods: &Pods{}, Modes: []report.Mode{report.Default, report.Tenon65}}, blocks},
		"blocks of a cluster":          {Config{Pods: &Pods{}, Setting: testbed.Setting{Blocks: 3}}, blocks},
		"wrk on a cluster":             {Config{Pods: &Pods{}, Client: harness.ClientWrk}, blocks},
		"batch pods for a scheduler":   {Config{Pods: &Pods{Batch: 4}}, blocks},
		"requests of three sizes":      {Config{Modes: []report.Mode{report.BurstableEighth, report.BurstableHalf, report.BurstableFull}}, switched},
	} {
		got, err := c.c.WithDefaults()
		if err != nil || got.Design != c.want {
			t.Errorf("%s: design %q, error %v, want %q", name, got.Design, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		c    Config
		want []report.Mode
	}{
		"switched":            {Config{Pods: &Pods{}}, SwitchedModes},
		"in blocks":           {Config{Pods: &Pods{}, Design: blocks}, PodModes},
		"in blocks of length": {Config{Pods: &Pods{}, Duration: time.Second}, PodModes},
		"with batch pods":     {Config{Pods: &Pods{Batch: 4}}, BatchPodModes},
	} {
		if got, err := c.c.WithDefaults(); err != nil || !slices.Equal(got.Modes, c.want) {
			t.Errorf("on a cluster, %s: modes %v, error %v, want %v", name, got.Modes, err, c.want)
		}
	}
	for _, pods := range []*Pods{nil, {}} {
		c, err := Config{Campaign: true, Pods: pods}.WithDefaults()
		whole := time.Duration(c.Blocks) * (c.Duration + c.Warmup() + 2*time.Second)
		if err != nil || c.Design != switched || !slices.Equal(c.Modes, CampaignModes) || whole < 55*time.Minute || whole > time.Hour {
			t.Errorf("a campaign has design %s and modes %v, and takes %v; error %v", c.Design, c.Modes, whole, err)
		}
	}
	c, err := Config{}.WithDefaults()
	if err != nil || c.Blocks != 12 || c.Duration != 40*time.Second || c.Warmup() != 3*time.Second || c.rounds() != 10 {
		t.Errorf("%d starts of %v after %v, error %v", c.Blocks, c.Duration, c.Warmup(), err)
	}
	if whole := time.Duration(c.Blocks) * (c.Duration + c.Warmup() + 2*time.Second); whole > 10*time.Minute {
		t.Errorf("the default takes %v", whole)
	}
}

func TestADesignRefusesSettingsOfTheOther(t *testing.T) {
	switched, blocks := colocation.DesignSwitch, colocation.DesignBlocks
	for name, c := range map[string]struct {
		c    Config
		want string
	}{
		"blocks of starts":     {Config{Design: switched, Setting: testbed.Setting{Blocks: 3}}, "--blocks and --duration are for --design blocks"},
		"starts of blocks":     {Config{Design: blocks, Starts: 3}, "--campaign, --starts, --start-length and --turn are for --design switch"},
		"frozen in a block":    {Config{Design: blocks, Modes: []report.Mode{report.Frozen, report.Tenon}}, "mode frozen: only --design switch has it"},
		"requests in pods":     {Config{Design: blocks, Pods: &Pods{}, Modes: []report.Mode{report.Default, report.Burstable}}, "mode burstable: on a cluster only --design switch has it"},
		"wrk in turns":         {Config{Design: switched, Pods: &Pods{}, Client: harness.ClientWrk}, "with --client wrk the modes cannot be switched"},
		"exclusive for a turn": {Config{Design: switched, Modes: []report.Mode{report.Exclusive, report.Tenon}}, "modes exclusive cannot be switched"},
		"one mode":             {Config{Design: switched, Modes: []report.Mode{report.Tenon}}, "want two modes or more"},
		"short turns":          {Config{Turn: time.Millisecond}, "--turn 1ms: want 1s or more"},
		"no whole round":       {Config{StartLength: 3 * time.Second}, "--start-length 3s: want 4s or more, for one round of 4 modes"},
		"no design":            {Config{Design: "swap"}, `--design "swap": want switch or blocks`},
		"negative":             {Config{Starts: -1}, "--starts -1: want 1 or more"},
		"no check of blocks":   {Config{Design: blocks, NoCheck: true}, "--no-check is for --design switch"},
	} {
		_, err := c.c.WithDefaults()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestSwitchedModesRunAndLeaveNothing runs two starts. Each turn must have what its
// mode has: no batch work while it is frozen, and Tenon's writes in turns of Tenon.
func TestSwitchedModesRunAndLeaveNothing(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := smallExperiment(t)
	c.Blocks, c.Duration = 0, 0
	c.Starts, c.StartLength = 2, 8*time.Second
	weights := weightsOf(t, string(c.Root)+"/kubepods/besteffort")
	var notices strings.Builder
	c.Notices = &notices
	o, err := Run(t.Context(), c)
	t.Log(notices.String())
	if err != nil {
		t.Fatal(err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil || len(runs) != 2 {
		t.Fatal(len(runs), err)
	}
	if e.Design != colocation.DesignSwitch || e.Turn != time.Second || !slices.Equal(e.Looks, []int{2}) || e.BatchRequest == 0 {
		t.Errorf("%+v", e)
	}
	checkCheck(t, e, notices.String())
	used, frames, seen := map[bool]float64{}, map[bool]float64{}, map[report.Mode]bool{}
	orders := map[string]bool{}
	for _, r := range runs {
		var order []report.Mode
		for _, w := range r.Windows {
			order = append(order, w.Mode)
			seen[w.Mode] = true
			used[w.Mode == report.Frozen] += w.BECPU
			frames[w.Mode == report.Frozen] += w.Frames
			if w.Frames != math.Trunc(w.Frames) {
				t.Errorf("start %d, round %d of %s: %v frames, want a count", r.Block, w.Round, w.Mode, w.Frames)
			}
			if w.Length < 400*time.Millisecond || w.Requests == 0 || w.WithStalls == nil || w.WithStalls.P90 <= 0 || w.Early.TotalCount() == 0 || w.Late.TotalCount() == 0 {
				t.Errorf("start %d, round %d of %s: %v long, %d requests, %+v", r.Block, w.Round, w.Mode, w.Length, w.Requests, w.WithStalls)
			}
		}
		orders[harness.JoinModes(order)] = true
		checkTurns(t, r)
	}
	if len(orders) != 2 || len(seen) != len(SwitchedModes) {
		t.Errorf("modes %v, in the orders %v", seen, orders)
	}
	if used[true] > 0.1*used[false] {
		t.Errorf("the batch work used %.3f CPUs while it was frozen, and %.3f in the other turns", used[true], used[false])
	}
	if frames[true] != 0 || frames[false] == 0 {
		t.Errorf("the batch work made %v frames while it was frozen, and %v in the other turns", frames[true], frames[false])
	}
	if got := weights(); len(got) != 2 {
		t.Errorf("the batch work had the weights %v, want that of a BestEffort pod and that of requests", got)
	}
}

// checkCheck checks that the check before the run is recorded and was said.
func checkCheck(t *testing.T, e colocation.Experiment, said string) {
	t.Helper()
	c := e.Check
	if c == nil {
		t.Error("the record has no check of the machine")
		return
	}
	// On a busy machine, turns are late, and the load ends before the last ones.
	modes := len(colocation.TrialModes(e.Modes))
	if c.CPUs < 2 || c.Watched < othersLength || c.Windows < modes || c.Windows > trialRounds*modes || len(c.Expected) != 2 {
		t.Errorf("check %+v", c)
	}
	for _, line := range c.Lines() {
		if !strings.Contains(said, line) {
			t.Errorf("the user was not shown %q", line)
		}
	}
}

// checkTurns checks that the policies want the same in each of their turns, and give
// all of it back.
func checkTurns(t *testing.T, r colocation.Run) {
	t.Helper()
	writes, turns := map[string]int{}, 0
	for _, w := range r.Windows {
		if w.Mode == report.Tenon {
			turns++
		}
	}
	same := false
	for _, w := range r.Writes {
		_, step, _ := strings.Cut(w, "s ") // the time comes first
		writes[step]++
		same = same || writes[step] == turns
	}
	for step, n := range writes {
		if n > 2 || !strings.Contains(step, " slice ") && !strings.Contains(step, " cpu.weight ") {
			t.Errorf("start %d: Tenon wrote %d times %q", r.Block, n, step)
		}
	}
	if turns > 0 && !same {
		t.Errorf("start %d: Tenon wrote in %d turns %q", r.Block, turns, r.Writes)
	}
}

// weightsOf watches the weight of a cgroup until the test or the returned function
// ends it. The function returns the weights.
func weightsOf(t *testing.T, group string) func() map[cgroup.CPUWeight]bool {
	t.Helper()
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	seen, done := map[cgroup.CPUWeight]bool{}, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// Before it has its weight, the cgroup has the kernel's default.
			if w, err := tree.ReadCPUWeight(group); err == nil && w.Weight != unit.WeightOf(100) {
				seen[w] = true
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() map[cgroup.CPUWeight]bool {
		cancel()
		<-done
		return seen
	}
}

// killedLab is set in the process that TestAKilledLabLeavesNothingFrozen kills.
const killedLab = "TENON_TEST_KILLED_LAB"

// frozenExperiment returns the configuration of an experiment whose batch work has a
// descendant that outlives the lab.
func frozenExperiment(setting testbed.Setting) Config {
	return Config{
		Setting: setting, Modes: []report.Mode{report.Frozen, report.Default}, NoCheck: true, Starts: 1, StartLength: 20 * time.Second, LoadPercent: nearFirst,
		Workloads: work.Workloads{Service: "self", SelfThreads: 1, Batch: []string{"sh -c 'while :; do :; done' & wait"}},
	}
}

// TestAKilledLabLeavesNothingFrozen kills a lab with SIGKILL while its batch work is
// frozen. The descendants of the batch work must run again, so that they can be ended.
func TestAKilledLabLeavesNothingFrozen(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t)
	if dir := os.Getenv(killedLab); dir != "" {
		s := labtest.Setting(t)
		s.Root, s.Out, s.JournalDir, s.Blocks = node.CgroupPath(filepath.Base(dir)), filepath.Join(dir, "out"), filepath.Join(dir, "journal"), 0
		_, err := Run(context.Background(), frozenExperiment(s))
		t.Fatalf("the lab ended: %v", err)
	}
	dir := labtest.OpenDir(t)
	root := filepath.Base(dir)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), killedLab+"="+dir, "TMPDIR="+dir)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clearAfter(t, root, filepath.Join(dir, "journal")) })
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		t.Fatal(err)
	}
	group := root + "/kubepods/besteffort/pod-batch"
	frozen := func() bool { is, err := tree.IsFrozen(group); return err == nil && is }
	within := func(d time.Duration, holds func() bool) bool {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if holds() {
				return true
			}
		}
		return false
	}
	seen := within(time.Minute, frozen)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // its status is that of SIGKILL
	if !seen {
		t.Fatalf("the batch work was never frozen: %s", said.String())
	}
	if !within(10*time.Second, func() bool { return !frozen() }) {
		t.Error("the batch work of a killed lab stays frozen")
	}
	if some, err := tree.IsPopulated(group); err != nil || !some {
		t.Errorf("nothing of the batch work outlived the lab (%v), so the test shows nothing", err)
	}
}

// clearAfter removes what a killed lab left, as the next experiment does.
func clearAfter(t *testing.T, root, journal string) {
	t.Helper()
	s := labtest.Setting(t)
	s.Root, s.JournalDir = node.CgroupPath(root), journal
	site, err := testbed.Enter(context.Background(), s)
	if err != nil {
		t.Errorf("clear up after a killed lab: %v", err)
		return
	}
	if err := site.Close(); err != nil {
		t.Error(err)
	}
	labtest.NothingLeft(t, s)
}

// TestAnInterruptWhileFrozenLeavesNothing cancels an experiment in a turn of mode
// frozen. smallExperiment checks what is left.
func TestAnInterruptWhileFrozenLeavesNothing(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t)
	setting := labtest.Setting(t)
	setting.Blocks = 0
	t.Cleanup(func() { labtest.NothingLeft(t, setting) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for ctx.Err() == nil {
			if is, err := tree.IsFrozen(string(setting.Root) + "/kubepods/besteffort/pod-batch"); err == nil && is {
				cancel()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if _, err := Run(ctx, frozenExperiment(setting)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestAFullDiskLeavesNothing lets the record of a start not fit on its disk.
func TestAFullDiskLeavesNothing(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	setting := labtest.Setting(t)
	setting.Blocks, setting.Out = 0, filepath.Join(disk, "out")
	t.Cleanup(func() { labtest.NothingLeft(t, setting) })
	c := frozenExperiment(setting)
	c.StartLength = 4 * time.Second
	if _, err := Run(t.Context(), c); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
}

// TestAFailureOfTheServiceVoidsNoStart judges starts of four rounds of two modes.
func TestAFailureOfTheServiceVoidsNoStart(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*report.Run) // a window of Tenon in three of four rounds
		void  bool
	}{
		"as it should be": {func(*report.Run) {}, false},
		"it failed":       {func(w *report.Run) { w.Discard(report.Failed, "9 requests failed") }, false},
		"other work":      {func(w *report.Run) { w.Discard(report.Disturbed, "steal") }, true},
		"both": {func(w *report.Run) {
			w.Discard(report.Failed, "9 requests failed")
			w.Discard(report.Disturbed, "steal")
		}, true},
		"not its mode": {func(w *report.Run) { w.Discard(report.NotItsMode, "its weight changed") }, true},
	} {
		var r colocation.Run
		r.Discard(report.Failed, "timeout errors: 9") // of the whole start
		for round := range 4 {
			for _, mode := range []report.Mode{report.Frozen, report.Tenon} {
				w := colocation.Window{Round: round + 1, Run: report.Run{Mode: mode}}
				if mode == report.Tenon && round > 0 {
					c.spoil(&w.Run)
				}
				r.Windows = append(r.Windows, w)
			}
		}
		judgeStart(&r, 2, 4)
		if got := len(r.Void) > 0; got != c.void || got && r.Cause != report.Disturbed || len(r.Warnings) != 1 {
			t.Errorf("%s: void for %q (%s), warnings %q", name, r.Void, r.Cause, r.Warnings)
		}
	}
	r := colocation.Run{Windows: []colocation.Window{{Round: 1, Run: report.Run{Mode: report.Frozen}}}}
	if judgeStart(&r, 2, 2); r.Cause != report.Disturbed {
		t.Errorf("a start without its windows: %q", r.Void)
	}
}
