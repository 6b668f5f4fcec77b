// Package run runs the experiment on concurrent jobs, on this machine or on nodes
// of a Kubernetes cluster. It runs batch jobs at the same time, with different CPU
// limits and different ways to divide the CPUs. It measures the work and the
// resources of each job. On a cluster the jobs of a cell are Jobs that begin
// together and have the names of the published experiment.
package run

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// A Fill is a way to keep the slots of a cell busy.
type Fill string

// The ways to fill slots.
const (
	// Steady starts a new job in a slot whenever one ends. Only jobs that begin
	// within a window of time count. Until such a job ends, the number of jobs
	// beside it stays the same.
	Steady Fill = "steady"
	// Window runs endless transcodes, and counts their frames within a window
	// of time. It takes the same time for small and large limits. However, an
	// encoder that gets little CPU first empties its look-ahead. The frames
	// from the look-ahead cost less than later ones.
	Window Fill = "window"
	// Wave starts one job in each slot at the same time, and ends when the last
	// of them has ended.
	Wave Fill = "wave"
)

// A Config configures the experiment. If a field is zero, it has the default
// that its comment names. There are 4 blocks in 9 minutes and a half.
type Config struct {
	testbed.Setting
	Preset string // names the lists below (default: quick)
	// The cells are all combinations of these lists. A limit of 0 means that a
	// job has no CPU limit. With 0 threads, the program chooses their number. A
	// memory of 0 means no memory limit.
	Strategies []Strategy
	Jobs       []int
	Limits     []unit.MilliCPU
	Memory     []unit.Bytes
	Threads    []int

	Slice    int           // CPUs of a pinned virtual worker (default: the limit, rounded up)
	BurstMax unit.MilliCPU // strategy burst: the quota is the larger one of this and twice the limit (default: 8 CPUs)
	Fill     Fill          // default: steady
	Window   time.Duration // the jobs that begin in it count (default: 2 s)
	Warmup   time.Duration // time before Window (default: 800 ms)
	// AsPublished runs each cell once, in the order of the lists, with all jobs
	// at once. A pinned virtual worker then also has the limit as a quota.
	AsPublished bool
	Type        string // of all jobs, in the table (default: the strategy)

	Argv     []string      // command of a job (default: the lab's transcode)
	Work     time.Duration // CPU time of one of the lab's transcodes, alone (default: 500 ms; of pods 5 s)
	Height   int           // of the transcode's picture in lines (default: 360, 720 or 1080, the smallest with a thread for each CPU)
	Input    string        // film, on a cluster its path in the image (default: the lab's own clip)
	CacheDir string        // directory of the rendered clip (default: work.CacheDir)

	ForeignPercent float64 // CPU use of other work that voids a run, in percent of the tested CPUs (default: 5)

	Pods *Pods // where the pods run; nil: this machine
}

// The bounds of the values of a Config.
const (
	maxJobs    = 512
	maxThreads = 1024
	minLimit   = unit.MilliCPU(10)
	minWindow  = 200 * time.Millisecond
)

// The bounds as texts.
const (
	LimitRange  = "none, or 0.01 to 2048 CPUs"
	MemoryRange = "none, or 1Mi and more"
)

// OrDefaults sets defaults, and returns all faults at once. If the preset and
// the caller set the same field, the caller's value applies.
func (c Config) OrDefaults() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Pods != nil {
		given := c
		pods := c.Pods.orDefaults(given, fault)
		c.Pods, c.Fill, c.Work = &pods, Wave, cmp.Or(c.Work, 5*time.Second)
	}
	c.Preset = cmp.Or(c.Preset, Quick)
	if _, known := presets[c.Preset]; !known {
		fault("--preset %q: want one of %s", c.Preset, strings.Join(Presets(), ", "))
	}
	c = c.preset()
	for _, s := range c.Strategies {
		if !slices.Contains(Strategies, s) {
			fault("--strategies %s: %q is not a strategy; want %s", join(c.Strategies), s, join(Strategies))
		}
	}
	for _, n := range c.Jobs {
		if n < 1 || n > maxJobs {
			fault("--jobs %d: want 1 to %d jobs at once", n, maxJobs)
		}
	}
	for _, l := range c.Limits {
		if l != 0 && (l < minLimit || l > unit.CPUs(unit.MaxCPUs)) {
			fault("--limits %v: want %s", l.Cores(), LimitRange)
		}
	}
	for _, m := range c.Memory {
		if m != 0 && m < 1<<20 {
			fault("--memory %d: want %s", m, MemoryRange)
		}
	}
	for _, n := range c.Threads {
		if n < 0 || n > maxThreads {
			fault("--threads %d: want 0 (the choice of the program) to %d", n, maxThreads)
		}
	}
	if c.Slice < 0 || c.Slice > unit.MaxCPUs {
		fault("--slice %d: want 1 to %d CPUs", c.Slice, unit.MaxCPUs)
	}
	c = c.times(fault)
	if c.Work < 50*time.Millisecond || c.Work > time.Hour {
		fault("--work %v: want 50ms to 1h of CPU time", c.Work)
	}
	if !slices.Contains([]int{0, 360, 720, 1080}, c.Height) {
		fault("--height %d: want 360, 720 or 1080", c.Height)
	}
	if c.Type != "" {
		if err := jobs.CheckType(c.Type); err != nil {
			fault("--type: %w", err)
		}
	}
	if c.Input != "" && c.Pods == nil {
		if _, err := os.Stat(c.Input); err != nil {
			fault("--input: %w", err)
		}
	}
	if len(c.Argv) > 0 && (c.Input != "" || c.Height != 0) {
		fault("--input and --height belong to the lab's own job, and a command was given")
	}
	if len(faults) == 0 {
		switch cells, refused := c.cells(func(Cell) string { return "" }); {
		case len(cells) == 0 && len(refused) > 0:
			fault("--strategies %s", strings.Join(refused, "; "))
		case len(cells) == 0:
			fault("--strategies and --limits make no cell: unbounded is the only strategy with the limit none, and has no other")
		}
	}
	c.NoClient = true
	c.Setting = c.Setting.OrDefaults(fault)
	return c, testbed.RefuseFlags(faults...)
}

func (c Config) times(fault func(string, ...any)) Config {
	if c.AsPublished {
		if c.Fill != "" && c.Fill != Wave || c.Blocks > 1 {
			fault("--as-published runs each cell once, as a wave: leave --fill and --blocks out")
		}
		c.Fill, c.Blocks = Wave, 1
	}
	c.Fill = cmp.Or(c.Fill, Steady)
	if c.Fill != Steady && c.Fill != Wave && c.Fill != Window {
		fault("--fill %q: want %s, %s or %s", c.Fill, Steady, Wave, Window)
	}
	if c.Fill == Window && len(c.Argv) > 0 {
		fault("--fill %s counts the frames of the lab's own job, and a command was given", Window)
	}
	c.Blocks = cmp.Or(c.Blocks, 4)
	c.Window = cmp.Or(c.Window, 2*time.Second)
	if c.Window < minWindow || c.Window > time.Hour {
		fault("--window %v: want %v to 1h", c.Window, minWindow)
	}
	c.Warmup = cmp.Or(c.Warmup, 800*time.Millisecond)
	if c.Warmup < 0 || c.Warmup > time.Hour {
		fault("--warmup %v: want more than 0 and at most 1h", c.Warmup)
	}
	c.MaxTime = cmp.Or(c.MaxTime, 9*time.Minute+30*time.Second)
	c.Work = cmp.Or(c.Work, 500*time.Millisecond)
	c.BurstMax = cmp.Or(c.BurstMax, unit.CPUs(8))
	c.ForeignPercent = cmp.Or(c.ForeignPercent, 5)
	testbed.CheckVoidPercent("--max-foreign", c.ForeignPercent, fault)
	c.CacheDir = cmp.Or(c.CacheDir, work.CacheDir())
	return c
}

func join[T ~string](all []T) string {
	text := make([]string, len(all))
	for i, v := range all {
		text[i] = string(v)
	}
	return strings.Join(text, ", ")
}
