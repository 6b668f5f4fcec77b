package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

func TestTheTwoWantMoreMemoryThanThereIs(t *testing.T) {
	for _, version := range []int{1, 2} {
		for _, set := range []unit.Bytes{leastSet, 256 << 20, 10 << 30} {
			s := sizesOf(set, version)
			left := s.Parent - s.Request
			switch {
			case s.Request <= s.Set:
				t.Errorf("v%d: the service counts on %v for %v of pages alone", version, s.Request, s.Set)
			case s.HogHeld >= left:
				t.Errorf("v%d: the batch work holds %v, which nothing can reclaim, and %v are left for it", version, s.HogHeld, left)
			case s.HogFile+s.HogHeld+s.Set < 2*s.Parent:
				t.Errorf("v%d: %v and %v fit into %v", version, s.HogFile, s.Set, s.Parent)
			}
			high := s.HogLimit * unit.Bytes(s.ThrottlingPercent) / 100
			if version == 1 && (s.HogLimit != left || s.ThrottlingPercent != 0) {
				t.Errorf("v1: limit %v, throttled from %d %%: want the limit to be what is left, %v", s.HogLimit, s.ThrottlingPercent, left)
			}
			if version == 2 && (high > left || high < left*9/10) {
				t.Errorf("v2: throttled from %v on, want a little less than %v", high, left)
			}
		}
	}
}

func TestMeterInterpolates(t *testing.T) {
	at := time.Unix(100, 0)
	m := &meter{}
	if err := m.follow(strings.NewReader("100\n300\n400\n"), func() time.Time { at = at.Add(time.Second); return at }); err != nil {
		t.Fatal(err)
	}
	second := func(s float64) time.Time { return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct{ from, to, want float64 }{{1, 3, 300}, {1.5, 2, 100}, {2.5, 9, 50}, {0, 0.5, 0}, {9, 10, 0}} {
		if got := m.between(second(c.from), second(c.to)); !near(got, c.want) {
			t.Errorf("from %v to %v s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	if m.last() != 400 {
		t.Errorf("last %v", m.last())
	}
	if err := m.follow(strings.NewReader("many\n"), time.Now); err == nil {
		t.Error("a line that is no number is taken")
	}
}

// What the lab tells tenond must be what tenond understands, and must ask for
// the same as the lab's own loop.
func TestTenondUnderstandsWhatTheLabTellsIt(t *testing.T) {
	tested := unit.CPUSetOf(0)
	v1, v2 := sizesOf(256<<20, 1), sizesOf(256<<20, 2)
	p := pods{root: "lab", job: "hog", tested: tested}
	reaction := &reactionBench{ReactionConfig: ReactionConfig{Setting: Setting{Root: "lab"}, Objective: time.Millisecond}, site: &site{place: Placement{Tested: tested}}}
	for name, c := range map[string]tenondConfig{
		"colocation":    colocationTenond(pods{root: "lab", tested: tested}, traits{suppress: true}),
		"isolation":     colocationTenond(pods{root: "lab", tested: tested}, traits{}),
		"a rung":        colocationTenond(pods{root: "lab", tested: tested}, traits{rung: node.RungCoreSched}),
		"memory on v1":  (&memoryBench{sizes: v1}).tenondConfig(p),
		"memory on v2":  (&memoryBench{sizes: v2}).tenondConfig(p),
		"events":        reaction.tenondConfig(report.Events),
		"a clock alone": reaction.tenondConfig(report.Ticks),
		"PSI":           reaction.tenondConfig(report.PSI),
		"idle":          reaction.tenondConfig(report.IdleBE),
	} {
		text, err := c.text()
		if err != nil {
			t.Fatal(err)
		}
		got, faults := config.Parse(text)
		if len(faults) > 0 || len(got.Notices) > 0 {
			t.Errorf("%s: faults %v, notices %q in\n%s", name, faults, got.Notices, text)
			continue
		}
		if len(got.Rules) != 2 || got.Policy.CPUQOS.Enable != c.Isolate || got.Policy.CPUQOS.Rung != c.Rung || got.Policy.Suppress.Enable != c.Suppress {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Signals.RunQueueDelay == c.NoDelays || got.Signals.Pressure == c.NoPressure {
			t.Errorf("%s: signals %+v", name, got.Signals)
		}
		for class, shares := range c.Memory.Classes {
			if got.Policy.Memory.Classes[class] != shares {
				t.Errorf("%s: %s gets %+v, want %+v", name, class, got.Policy.Memory.Classes[class], shares)
			}
		}
		for i, r := range c.Rules {
			if has := got.Rules[i]; has.MemoryRequest.Or(0) != r.Request || has.MemoryLimit.Or(0) != r.Limit || has.Objective.RunQueueDelay.Or(0) != r.Objective {
				t.Errorf("%s: rule %+v, want %+v", name, has, r)
			}
		}
	}
}

func TestFaultsOfTheMemoryExperimentAreToldAtOnce(t *testing.T) {
	_, err := MemoryConfig{Blocks: -1, Set: 1, Rate: -5, Duration: time.Millisecond}.orDefaults()
	for _, want := range []string{"--blocks -1", "--set 1:", "--rate -5", "--duration 1ms"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if c, err := (MemoryConfig{}).orDefaults(); err != nil || c.Set != 256<<20 || c.Blocks != 6 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ParseModes("default,tenon", MemoryModes); err == nil || !strings.Contains(err.Error(), "tenond") {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestEvictedFilesLeaveMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "tenon-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "file")
	if err := writeFile(path, 3<<20+1, 1); err != nil {
		t.Fatal(err)
	}
	if held, all, err := cachedPages(path); err != nil || held != all || all != (3<<20)/os.Getpagesize()+1 {
		t.Fatalf("%d of %d pages in memory after they were written, %v", held, all, err)
	}
	if err := evict(dir); err != nil {
		t.Fatal(err)
	}
	held, all, err := cachedPages(path)
	if err != nil {
		t.Fatal(err)
	}
	if held == all {
		t.Skipf("the file system of /var/tmp keeps files in memory: all of %d pages", all)
	}
	if held > all/2 {
		t.Errorf("%d of %d pages are still in memory", held, all)
	}
	if err := roomFor(dir, 1<<60); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("room for an exbibyte: %v", err)
	}
}

// littleMemory is a short experiment; when the test ends, nothing of it may be
// left.
func littleMemory(t *testing.T, modes ...report.Mode) MemoryConfig {
	t.Helper()
	real(t, nginxProgram)
	tree, err := cgroup.Detect("/proc")
	if err != nil || !tree.Has("memory") {
		t.Skipf("no memory controller: %v", err)
	}
	data, err := os.MkdirTemp("/var/tmp", "tenon-test-")
	if err != nil {
		t.Skip(err)
	}
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	c := MemoryConfig{
		Setting: setting(t), Modes: modes, Blocks: 1, Duration: time.Second, Set: leastSet, Rate: 100,
		Data: data, StealPercent: 100,
	}
	t.Cleanup(func() {
		nothingLeft(t, c.Setting)
		if err := os.Remove(data); err != nil {
			t.Errorf("files are left in --data: %v", err)
		}
		os.RemoveAll(data)
	})
	return c
}

func TestMemoryRunsAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", openDir(t))
	c := littleMemory(t, report.Default, report.Tenond)
	var notices strings.Builder
	c.Notices = &notices
	o, err := Memory(t.Context(), c)
	t.Log(notices.String())
	if err != nil {
		if strings.Contains(err.Error(), "keeps files in memory") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	e, runs, err := report.Load(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[report.Mode]report.Run{}
	for _, r := range runs {
		seen[r.Mode] = r
		if r.Memory == nil || r.Memory.BEBytes == 0 || r.Memory.LSHeld == 0 || len(r.Memory.Course) == 0 || r.Requests == 0 {
			t.Errorf("%s: %+v", r.Mode, r.Memory)
			continue
		}
		if both := r.Memory.LSHeld + r.Memory.BEHeld; both > e.Memory.Parent {
			t.Errorf("%s: both hold %v of %v", r.Mode, both, e.Memory.Parent)
		}
	}
	if len(seen) != 2 {
		t.Fatalf("modes %v", seen)
	}
	if w := strings.Join(seen[report.Tenond].Writes, "\n"); !strings.Contains(w, "pod-hog memory") {
		t.Errorf("tenond wrote %q", w)
	}
	if len(seen[report.Default].Writes) > 0 {
		t.Errorf("default wrote %q", seen[report.Default].Writes)
	}
	if _, err := os.Stat(o.Report()); err != nil {
		t.Error(err)
	}
}

func TestMemoryOfInterruptedExperimentIsGivenBack(t *testing.T) {
	t.Setenv("TMPDIR", openDir(t))
	c := littleMemory(t, report.Default)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Notices = &trigger{word: "run 1", act: func() { time.AfterFunc(300*time.Millisecond, cancel) }}
	if _, err := Memory(ctx, c); err == nil || !strings.Contains(err.Error(), "keeps files in memory") && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestFilesThatStayInMemoryAreRefused(t *testing.T) {
	t.Setenv("TMPDIR", openDir(t))
	c := littleMemory(t, report.Default)
	shm, err := os.MkdirTemp("/dev/shm", "tenon-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	c.Data = shm
	if _, err := Memory(t.Context(), c); err == nil || !strings.Contains(err.Error(), "cannot enter "+shm) {
		t.Errorf("a directory that nginx cannot enter: error %v", err)
	}
	if err := os.Chmod(shm, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Memory(t.Context(), c); err == nil || !strings.Contains(err.Error(), "keeps files in memory") {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(shm); len(left) > 0 {
		t.Errorf("left in --data: %v", left)
	}
}
