package run

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// smt returns a machine whose cores have two threads each. CPUs i and cores+i
// are siblings, as usual.
func smt(cores int) hardware {
	var t node.Topology
	for i := range 2 * cores {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i % cores)})
	}
	return hardwareOf(t, t.All(), 8*gib)
}

func plain(cpus int) hardware {
	var t node.Topology
	for i := range cpus {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i)})
	}
	return hardwareOf(t, t.All(), 8*gib)
}

// caches returns a machine with n L3 caches of each CPUs.
func caches(n, each int) hardware {
	var t node.Topology
	for i := range n * each {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i), L3: node.CacheID(i / each)})
	}
	return hardwareOf(t, t.All(), 8*gib)
}

func TestTheQuickPresetFitsTwoCPUs(t *testing.T) {
	c, err := Config{}.OrDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cells, refused := c.cells(func(cell Cell) string { return c.refuse(cell, plain(2)) })
	if n := len(cells); n != 24 || !slices.Contains(cells, Reference) {
		t.Errorf("%d cells %v", n, cells)
	}
	if len(refused) != 1 || !strings.Contains(refused[0], "quota, 4 jobs, limit 1: "+testbed.TooFewCPUs{For: "the jobs together", Need: 4000, Have: 2000}.Error()) {
		t.Errorf("refused %q", refused)
	}
	if spent := time.Duration(len(cells)*c.Blocks) * (c.Window + c.Warmup + 1500*time.Millisecond); spent > 10*time.Minute {
		t.Errorf("the cells take about %v", spent)
	}
}

func TestCellsThatExceedTheMachineAreRefusedByName(t *testing.T) {
	for want, cell := range map[string]Cell{
		"too few CPUs for one job: want 3, have 2":         {Strategy: PinnedSlices, Jobs: 1, Limit: 3000},
		"the jobs together: want 2.4, have 2":              {Strategy: Matched, Jobs: 2, Limit: 1200},
		"the jobs ask for 16 GiB together":                 {Strategy: Quota, Jobs: 4, Limit: 500, Memory: 4 * gib},
		"the kubelet gives exclusive CPUs for whole":       {Strategy: Static, Jobs: 1, Limit: 500},
		"smaller pool with room for a job: it is the same": {Strategy: StaticBurst, Jobs: 1, Limit: 1000},
		"the jobs together: want 3, have 2":                {Strategy: StaticBurst, Jobs: 3, Limit: 1000},
		"it is the same as pinned":                         {Strategy: PinnedBlind, Jobs: 1, Limit: 1000},
		"8 CPUs is no limit on 2: it is the same as unbo":  {Strategy: Burst, Jobs: 1, Limit: 1000},
	} {
		c, _ := Config{}.OrDefaults()
		if why := c.refuse(cell, plain(2)); !strings.Contains(why, want) {
			t.Errorf("%v: %q, want %q", cell, why, want)
		}
	}
	c, _ := Config{Slice: 3}.OrDefaults()
	if why := c.refuse(Cell{Strategy: PinnedSlices, Jobs: 1, Limit: 500}, plain(2)); why != (testbed.TooFewCPUs{For: "a slice", Need: 3000, Have: 2000}).Error() {
		t.Errorf("%q", why)
	}
	if why := c.refuse(Cell{Strategy: PinnedBlind, Jobs: 1, Limit: 1000}, smt(4)); why != "" {
		t.Errorf("pinned-blind on a machine with siblings: %s", why)
	}
	for cell, want := range map[Cell]string{
		{Strategy: StaticBurst, Jobs: 2, Limit: 2000}: "",
		{Strategy: StaticBurst, Jobs: 1, Limit: 3000}: "it is the same as quota", // more than a cache has
	} {
		if why := c.refuse(cell, caches(2, 2)); (why == "") != (want == "") || !strings.Contains(why, want) {
			t.Errorf("%v with two caches: %q, want %q", cell, why, want)
		}
	}
}

// TestPublishedCellsNeedNoControl checks that an experiment with AsPublished
// runs the published cells in the same order, and no other cell.
func TestPublishedCellsNeedNoControl(t *testing.T) {
	c, err := Config{Preset: "published-aws", AsPublished: true}.OrDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cells, refused := c.cells(func(cell Cell) string { return c.refuse(cell, plain(2)) })
	if len(cells) != 6 || len(refused) != 48 { // 1 job: limits 1 and 2, three amounts of memory
		t.Errorf("%d cells %v, %d refused", len(cells), cells, len(refused))
	}
	if slices.Contains(cells, Reference) || c.Fill != Wave || c.Blocks != 1 {
		t.Errorf("fill %s, %d blocks, cells %v", c.Fill, c.Blocks, cells)
	}
}

func TestFewPinnedJobsGetWholeCores(t *testing.T) {
	m := smt(4)
	sets := workers(m, 1, false, nil)
	var cores []unit.CPU
	for _, s := range sets[:4] {
		for c := range s.All() {
			cores = append(cores, c%4)
		}
	}
	slices.Sort(cores)
	if !slices.Equal(cores, []unit.CPU{0, 1, 2, 3}) {
		t.Errorf("the first four slices are %v", sets[:4])
	}
	for _, s := range workers(m, 2, false, nil) {
		if s.Len() != 2 || m.topology.Siblings(first(s)) != s {
			t.Errorf("slice %v is not a core", s)
		}
	}
}

func first(s unit.CPUSet) unit.CPU {
	for c := range s.All() {
		return c
	}
	return -1
}

func TestStrategiesDivideTheMachine(t *testing.T) {
	m := plain(4)
	for _, tt := range []struct {
		cell    Cell
		c       Config
		want    string // sets and quotas
		waiting bool
	}{
		{cell: Cell{Strategy: Quota, Jobs: 2, Limit: 500}, want: "0-3/500 0-3/500"},
		{cell: Cell{Strategy: Unbounded, Jobs: 2}, want: "0-3/0 0-3/0"},
		{cell: Cell{Strategy: Tenon, Jobs: 1, Limit: 1000}, want: "0-3/0"},
		{cell: Cell{Strategy: StaticBurst, Jobs: 1, Limit: 1000}, want: "0-3/0"}, // Tenon's loop writes the pool and the quota
		{cell: Cell{Strategy: PinnedSlices, Jobs: 3, Limit: 1500}, want: "0-1/0 2-3/0 0-1/0"},
		{cell: Cell{Strategy: PinnedSlices, Jobs: 1, Limit: 1500}, c: Config{AsPublished: true}, want: "0-1/1500"},
		{cell: Cell{Strategy: Static, Jobs: 3, Limit: 2000}, want: "0-1/0 2-3/0", waiting: true},
		{cell: Cell{Strategy: Burst, Jobs: 1, Limit: 1000}, c: Config{BurstMax: 3000}, want: "0-3/3000"},
		{cell: Cell{Strategy: Burst, Jobs: 1, Limit: 1000}, c: Config{BurstMax: 1000}, want: "0-3/2000"},
	} {
		d := tt.c.divide(tt.cell, m, 1, 1)
		var got []string
		for _, p := range d.slots {
			got = append(got, p.CPUs.String()+"/"+p.Quota.String())
		}
		if text := strings.Join(got, " "); !sameDivision(text, tt.want) || d.waiting != tt.waiting {
			t.Errorf("%v: %s, want %s", tt.cell, text, tt.want)
		}
	}
	blind := func(block int) string {
		return Config{}.divide(Cell{Strategy: PinnedBlind, Jobs: 2, Limit: 2000}, smt(4), 7, block).slots[0].CPUs.String()
	}
	if first, again := blind(1), blind(1); first != again {
		t.Error("the same block draws different CPUs")
	}
	if blind(1) == blind(2) && blind(2) == blind(3) && blind(3) == blind(4) {
		t.Error("four blocks draw the same CPUs")
	}
}

// sameDivision compares divisions as texts. Amounts of CPU are in the notation
// of package unit.
func sameDivision(got, want string) bool {
	for _, m := range []unit.MilliCPU{0, 500, 1500, 2000, 3000} {
		want = strings.ReplaceAll(want+" ", "/"+plainNumber(m)+" ", "/"+m.String()+" ")
		want = strings.TrimSuffix(want, " ")
	}
	return got == want
}

func plainNumber(m unit.MilliCPU) string {
	return map[unit.MilliCPU]string{0: "0", 500: "500", 1500: "1500", 2000: "2000", 3000: "3000"}[m]
}

func TestBadInputNamesFieldAndRange(t *testing.T) {
	for want, c := range map[string]Config{
		`--preset "slow": want one of`:                    {Preset: "slow"},
		`"numa" is not a strategy; want quota, pinned`:    {Strategies: []Strategy{"numa"}},
		"--jobs 0: want 1 to 512":                         {Jobs: []int{0}},
		"--limits 0.005: want none, or 0.01 to 2048 CPUs": {Limits: []unit.MilliCPU{5}},
		"--memory 4096: want none, or 1Mi and more":       {Memory: []unit.Bytes{4096}},
		"--threads -1: want 0":                            {Threads: []int{-1}},
		"--fill \"half\": want steady, wave or window":    {Fill: "half"},
		"--fill window counts the frames":                 {Fill: Window, Argv: []string{"true"}},
		"--window 1ms: want 200ms to 1h":                  {Window: time.Millisecond},
		"--work 1ms: want 50ms to 1h":                     {Work: time.Millisecond},
		"--height 480: want 360, 720 or 1080":             {Height: 480},
		"leave --fill and --blocks out":                   {AsPublished: true, Setting: testbed.Setting{Blocks: 3}},
		"type \"a-b\": want a word without":               {Type: "a-b"},
		"belong to the lab's own job":                     {Argv: []string{"true"}, Height: 360},
		"--max-time -1s: want more than 0":                {Setting: testbed.Setting{MaxTime: -time.Second}},
		"--agent":                                         {Setting: testbed.Setting{Agent: "/no/such/tenond"}},
	} {
		if _, err := c.OrDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestThePictureIsLargeEnoughForAThreadOnEachCPU(t *testing.T) {
	for cpus, want := range map[int]int{2: 360, 7: 360, 8: 720, 14: 720, 16: 1080, 128: 1080} {
		if h := heightFor(cpus); h != want {
			t.Errorf("%d CPUs: %d lines, want %d", cpus, h, want)
		}
	}
}

func TestAFailedJobVoidsItsRunWhetherItCountsOrNot(t *testing.T) {
	for _, counts := range []bool{true, false} {
		q := &queue{}
		q.end(jobs.Job{}, counts)
		q.end(jobs.Job{Extra: jobs.Extra{Void: "exit status 3"}}, counts)
		if n := len(q.rows); n == 0 || q.rows[n-1].Extra.Void == "" || counts != (q.ended == 2) {
			t.Errorf("counts %v: rows %+v, %d ended", counts, q.rows, q.ended)
		}
	}
}

// TestEachStrategyIsRead reads rows of each strategy. The package that reads
// tables has a list of its own.
func TestEachStrategyIsRead(t *testing.T) {
	for _, s := range append(slices.Clone(Strategies), concurrency.Control) {
		j := jobs.Job{Host: "a", Type: "b", Concurrency: 1, Extra: jobs.Extra{Strategy: string(s)}, Precision: time.Second, In: time.Unix(1, 0), Out: time.Unix(2, 0)}
		if err := j.Check(); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// TestTheHelpHasTheListsOfEachPreset reads the lists of the help back, and
// compares them with the cells of the preset.
func TestTheHelpHasTheListsOfEachPreset(t *testing.T) {
	help := PresetHelp()
	for _, name := range Presets() {
		_, text, found := strings.Cut("\n"+help, "\n  "+name+"\n")
		if !found {
			t.Errorf("the help has no preset %s", name)
			continue
		}
		words := strings.Fields(text)
		for _, g := range presets[name] {
			for _, list := range strings.Fields(g.String()) {
				if len(words) == 0 || words[0] != list {
					t.Fatalf("%s: the help has %q, want %q", name, words, list)
				}
				words = words[1:]
			}
		}
	}
	if want := "--strategies=quota --jobs=1,4,8,12,24,48 --limits=1,2,3 --memory=1Gi,2Gi,3Gi"; presets["published-aws"][0].String() != want {
		t.Errorf("%s, want %s", presets["published-aws"][0], want)
	}
	if want := "--strategies=unbounded --jobs=1,2,4 --limits=none --threads=0,1"; presets[Quick][2].String() != want {
		t.Errorf("%s, want %s", presets[Quick][2], want)
	}
}

// TestAListThatIsNotGivenComesFromThePreset gives one list of a preset with
// lists of threads.
func TestAListThatIsNotGivenComesFromThePreset(t *testing.T) {
	c, err := Config{Preset: BelowOne, Jobs: []int{1}, Limits: []unit.MilliCPU{400}}.OrDefaults()
	want := []Cell{{Strategy: Quota, Jobs: 1, Limit: 400}, {Strategy: Quota, Jobs: 1, Limit: 400, Threads: 1}}
	if got := c.Combinations(); err != nil || !slices.Equal(got, want) {
		t.Errorf("cells %v, error %v, want %v", got, err, want)
	}
}
