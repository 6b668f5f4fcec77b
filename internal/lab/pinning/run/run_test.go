package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestMain lets the test binary also serve as the lab's child process.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "lab-child" {
		os.Exit(m.Run())
	}
	if err := child(os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is the part of lab.Child that this experiment needs.
func child(role string, args []string) error {
	switch role {
	case "pi":
		return pi.Main(args, os.Stdout)
	case "spin":
		cpus, err := unit.ParseCPUSet(args[0])
		if err != nil {
			return err
		}
		return work.Spin(context.Background(), cpus, true)
	}
	var c load.Config
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return err
	}
	r, err := load.Run(context.Background(), c)
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(r))
}

func little(t *testing.T, needs ...work.Program) Config {
	t.Helper()
	labtest.RequireReal(t, needs...)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := Config{Setting: labtest.Setting(t), Duration: time.Second}
	t.Cleanup(func() { labtest.NothingLeft(t, c.Setting) })
	return c
}

func measured(t *testing.T, c Config) map[pinning.Mode]pinning.Run {
	t.Helper()
	var notices strings.Builder
	c.Notices = &notices
	o, err := Run(t.Context(), c)
	t.Log(notices.String())
	if err != nil {
		t.Fatal(err)
	}
	_, runs, err := pinning.Load(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.Report()); err != nil {
		t.Error(err)
	}
	byMode := map[pinning.Mode]pinning.Run{}
	for _, r := range runs {
		byMode[r.Mode] = r
	}
	return byMode
}

// TestPiRunsWithAllItsThreads checks the job in each mode. It must have all its
// threads, and correct digits. On a single CPU, it must never change the CPU.
// Only a quota may throttle it.
func TestPiRunsWithAllItsThreads(t *testing.T) {
	c := little(t)
	c.Parts, c.Modes, c.Threads, c.Digits, c.Rounds = []string{pinning.Pi}, []pinning.Mode{pinning.Shared, pinning.SharedWarm, pinning.Pinned}, 300, 3000, 40
	c.Limit = 1
	runs := measured(t, c)
	for _, m := range c.Modes {
		r := runs[m]
		if r.PiResult == nil || r.PiResult.Threads < 300 || r.PiResult.Right != 3000 || r.CPU <= 0 {
			t.Errorf("%s: %+v %+v", m, r, r.PiResult)
		}
	}
	if r := runs[pinning.Pinned]; r.Throttled != 0 || r.CPUs.Len() != 1 || r.Moves != nil && *r.Moves > 0 {
		t.Errorf("pinned to CPUs %v: %d periods throttled, moves %v", r.CPUs, r.Throttled, r.Moves)
	}
	if r := runs[pinning.Shared]; r.Periods == 0 {
		t.Error("shared has no quota")
	}
}

// TestServersAnswer runs the web servers. They must answer the closed loop. If
// the client has CPUs of its own, they must answer the open loop, too.
func TestServersAnswer(t *testing.T) {
	c := little(t, work.NGINXProgram, work.WrkProgram)
	if runtime.NumCPU() < 2 {
		t.Skip("the client needs a CPU")
	}
	dir, err := os.MkdirTemp("", "tenon-test-") // nginx's workers must be able to enter this directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	c.Parts, c.Modes = []string{pinning.NGINX}, []pinning.Mode{pinning.Shared}
	r := measured(t, c)[pinning.Shared]
	if r.Closed == nil || r.Closed.Rate <= 0 || r.Closed.Mean <= 0 || r.Closed.P99 < r.Closed.P50 || r.CPU <= 0 {
		t.Errorf("closed loop %+v of %+v", r.Closed, r)
	}
	if cpus := runtime.NumCPU(); cpus < 8 && r.Open != nil || cpus >= 8 && (r.Open == nil || r.Open.Mean <= 0) {
		t.Errorf("open loop %+v", r.Open)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

func TestInterruptedPinningLeavesNothing(t *testing.T) {
	c := little(t)
	c.Parts, c.Threads, c.Digits, c.Rounds = []string{pinning.Pi}, 50, 20000, 1000
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestTheSmallestMachinesRefuseServers(t *testing.T) {
	machine := func(cpus int) (node.Topology, unit.CPUSet) {
		var t node.Topology
		for i := range cpus {
			t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i)})
		}
		return t, t.All()
	}
	for cpus, want := range map[int]struct {
		servers, each, limit int
		refusal              string
	}{
		1: {0, 0, 1, "too few CPUs for a server and its client"},
		2: {1, 1, 1, "too few CPUs for two servers and their client"},
		3: {2, 1, 1, "static: no mode of its own"},
		9: {2, 3, 4, "static: no mode of its own"},
	} {
		topology, all := machine(cpus)
		d, err := Config{}.divide(topology, all)
		if err != nil || d.servers != want.servers || d.each != want.each || d.limit != want.limit || !strings.Contains(strings.Join(d.refused, "\n"), want.refusal) {
			t.Errorf("%d CPUs: %+v, %v", cpus, d, err)
		}
		if cpus > 2 && !d.client.Intersect(d.service).Empty() {
			t.Errorf("%d CPUs: client %v and servers %v share CPUs", cpus, d.client, d.service)
		}
	}
	topology, all := machine(2)
	if _, err := (Config{Limit: 3}).divide(topology, all); !errors.Is(err, tooFew("the job", 3, 2)) {
		t.Errorf("error %v", err)
	}
}

func TestEachClientOfTheOpenLoopHasItsOwnCPUsAndSchedule(t *testing.T) {
	for cpus, want := range map[int]string{2: "", 4: "", 7: "", 8: "6 7", 12: "9 10"} {
		var topology node.Topology
		for i := range cpus {
			topology.CPUs = append(topology.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i)})
		}
		d, err := Config{}.divide(topology, topology.All())
		if err != nil {
			t.Fatal(err)
		}
		if refused := strings.Contains(strings.Join(d.refused, "\n"), "open loop"); refused != (want == "") {
			t.Errorf("%d CPUs: refused %q", cpus, d.refused)
		}
		if want == "" {
			if len(d.pollers) > 0 {
				t.Errorf("%d CPUs: clients on %v", cpus, d.pollers)
			}
			continue
		}
		b := &machine{bench: bench{Config: Config{Setting: testbed.Setting{Seed: 5}}, Site: &testbed.Site{}}, division: d, servers: make([]work.NGINX, d.servers), rate: 100}
		first, one := b.openLoad(0, 1)
		second, two := b.openLoad(1, 1)
		if got := first.Place.Client.String() + " " + second.Place.Client.String(); got != want || one.Seed == two.Seed {
			t.Errorf("%d CPUs: clients on CPUs %s, want %s; seeds %d and %d", cpus, got, want, one.Seed, two.Seed)
		}
	}
}

// A run of the job alone has no minutes of web servers. Else --max-time would leave
// out blocks for which there is time.
func TestTheLengthOfARunHasLoopsOnlyWithServers(t *testing.T) {
	for _, c := range []struct {
		parts []string
		want  time.Duration
	}{
		{[]string{pinning.Pi}, 3 * time.Second},
		{[]string{pinning.Pi, pinning.NGINX}, 123 * time.Second},
	} {
		b := &machine{bench: bench{Config: Config{Parts: c.parts, Work: 3 * time.Second, Duration: time.Minute}}}
		if got := b.length(); got != c.want {
			t.Errorf("%q: %v, want %v", c.parts, got, c.want)
		}
	}
}

func TestModesDifferByOneThing(t *testing.T) {
	var topology node.Topology
	for i := range 4 {
		topology.CPUs = append(topology.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i)})
	}
	for mode, want := range map[pinning.Mode]struct {
		sets  string
		quota unit.MilliCPU
	}{
		pinning.Shared: {"0-3 0-3", 2000}, pinning.SharedFree: {"0-3 0-3", 0}, pinning.SharedWarm: {"0-3 0-3", 2000},
		pinning.Pinned: {"0-1 2-3", 0}, pinning.PinnedQuota: {"0-1 2-3", 2000}, pinning.PinnedWorst: {"0-1 2-3", 0},
		pinning.StaticBurst: {"0-3 0-3", 0}, // Tenon's loop writes the pools and the quotas
	} {
		list := boundsOf(mode, topology, topology.All(), 2, 2)
		if got := list[0].CPUs.String() + " " + list[1].CPUs.String(); got != want.sets || list[0].Quota != want.quota {
			t.Errorf("%s: CPUs %s, quota %v", mode, got, list[0].Quota)
		}
	}
}

// smt returns a machine whose cores have two threads, and whose L3 caches have
// two cores. The sibling of CPU i is CPU i + cores.
func smt(cores int) node.Topology {
	var t node.Topology
	for i := range 2 * cores {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i % cores), L3: node.CacheID(i % cores / 2)})
	}
	return t
}

func TestTheWorstChoiceSharesCoresAndLeavesCaches(t *testing.T) {
	topology := smt(4)
	for _, tt := range []struct {
		n, limit      int
		pinned, worst string
		refused       bool
	}{
		{2, 1, "0 1", "0 4", false},         // two servers on one core
		{1, 4, "0-1,4-5", "0,2,4,6", false}, // two caches
		{2, 2, "0,4 1,5", "0,4 2,6", true},  // whole cores in one cache each, as with pinned
		{1, 1, "0", "0", true},
	} {
		for mode, want := range map[pinning.Mode]string{pinning.Pinned: tt.pinned, pinning.PinnedWorst: tt.worst} {
			var got []string
			for _, s := range boundsOf(mode, topology, topology.All(), tt.n, tt.limit) {
				got = append(got, s.CPUs.String())
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s, %d times %d CPUs: %s, want %s", mode, tt.n, tt.limit, text, want)
			}
		}
		if why := whyUseless(pinning.PinnedWorst, topology, topology.All(), tt.n, tt.limit); (why != "") != tt.refused {
			t.Errorf("%d times %d CPUs: refused %q", tt.n, tt.limit, why)
		}
	}
}

func TestAPoolOfAllCPUsIsRefused(t *testing.T) {
	topology := smt(4)
	for limit, refused := range map[int]bool{1: false, 4: false, 5: true} {
		if why := whyUseless(pinning.StaticBurst, topology, topology.All(), 1, limit); (why != "") != refused {
			t.Errorf("limit %d in caches of 4 CPUs: %q", limit, why)
		}
	}
}

// TestAPoolHasTheLimitAsItsQuota runs static-burst although its pool may be all
// CPUs here. Tenon's loop must write the quota and the pool before the job
// begins.
func TestAPoolHasTheLimitAsItsQuota(t *testing.T) {
	c := little(t)
	c.Parts, c.Threads, c.Digits, c.Rounds, c.Limit = []string{pinning.Pi}, 50, 3000, 40, 1
	c, err := c.OrDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := enterMachine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b := s.common()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	var r pinning.Run
	err = s.measure(t.Context(), cell{pinning.Pi, pinning.StaticBurst}, &r)
	home := testbed.Homes(b.Topology, b.Place.Tested, 1, unit.CPUs(1))[0]
	if err != nil || len(r.Void) > 0 || r.Periods == 0 || r.CPUs != home || r.PiResult == nil || r.PiResult.Right != 3000 {
		t.Errorf("on CPUs %v, want %v; %d periods, void %q, %+v, %v", r.CPUs, home, r.Periods, r.Void, r.PiResult, err)
	}
}

func TestBadInputNamesFieldAndRange(t *testing.T) {
	for want, c := range map[string]Config{
		`--parts "redis": want pi, nginx`:     {Parts: []string{"redis"}},
		`--modes "numa": want some of shared`: {Modes: []pinning.Mode{pinning.Shared, "numa"}},
		"--modes: want shared among them":     {Modes: []pinning.Mode{pinning.Pinned}},
		"--blocks -1: want 1 or more":         {Setting: testbed.Setting{Blocks: -1}},
		"--threads 20000: want 1 to 9000":     {Threads: 20000},
		"--duration 1ms: want 1s or more":     {Duration: time.Millisecond},
		"--limit -1: want 1 or more":          {Limit: -1},
		"--work -1s: want more than 0":        {Work: -time.Second},
		"--agent":                             {Setting: testbed.Setting{Agent: "/no/such/tenond"}},
	} {
		if _, err := c.OrDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
