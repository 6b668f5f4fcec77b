package run

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
)

// Config configures one colocation or kernel-qos experiment. The zero value of
// a field selects its default, which the field's comment names. Some defaults
// differ between the two experiments. There are 12 blocks, from which a verdict is
// possible, and with UntilResolved any number. kernel-qos takes 25 minutes at most
// if Blocks is not set.
type Config struct {
	testbed.Setting
	Modes []report.Mode // default: AllModes; in kernel-qos: baseline, control and the isolation mechanisms of the node
	// Design is how the modes are measured (default: switch if all Modes can be
	// switched and neither Blocks nor Duration is set, and blocks otherwise).
	Design      colocation.Design
	Starts      int           // with switch, how often service and batch work start (default: 12)
	StartLength time.Duration // with switch, the length of all turns of a start (default: 40 s)
	Turn        time.Duration // with switch, how long a mode lasts (default: 1 s)
	NoCheck     bool          // with switch, does not check first what can be decided on the machine
	// Campaign changes the defaults to those of an experiment that is published: modes
	// with requests of three sizes, and an hour.
	Campaign bool
	LeaveOut bool          // leaves out those Modes whose mechanism the node does not have
	Duration time.Duration // of the measured part of a run (default: 10 s, and in kernel-qos 5 s)
	// UntilResolved adds blocks until all claims have final verdicts. The
	// experiment ends at the latest when MaxTime has passed.
	UntilResolved bool
	// Margin limits the ratio of the P99 beside batch work to the P99 alone
	// (default: 1.03).
	Margin float64
	// LoadPercent sets the offered rate by the CPU use that the service has
	// alone, in percent of the tested CPUs. The default is 30.
	LoadPercent float64
	Client      string // default: harness.ClientTenon
	Connections int    // default: 256, and for wrk 54 scaled to the machine
	BEProcesses int    // default: computed by Batch from the number of tested CPUs
	BEThreads   int    // default: 2
	Input       string // film to transcode, on a cluster its path in the image (default: a clip that the lab renders once; that of the image)
	Port        int    // on 127.0.0.1 (default: a free one; on a cluster 8000)
	CacheDir    string // directory of the rendered clip (default: work.CacheDir())

	Workloads work.Workloads // service, load and batch work

	Pods *Pods // the node of a cluster on which everything runs; nil: this machine

	kernelQOS bool // the experiment is kernel-qos
}

// kind returns the kind of the experiment.
func (c Config) kind() string {
	if c.kernelQOS {
		return colocation.KindKernelQOS
	}
	return colocation.Kind
}

// WithDefaults returns c with its defaults. If c has faults, the error names all
// of them.
func (c Config) WithDefaults() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	c.Workloads = c.Workloads.OrDefaults(fault)
	if c.Pods != nil {
		c = c.onCluster(fault)
	}
	c = c.switchedDefaults(fault)
	if c.kernelQOS {
		c = c.kernelQOSDefaults()
	} else if len(c.Modes) == 0 {
		switch {
		case c.Pods != nil:
			c.Modes = PodModes
		case c.Workloads.AreCustom():
			c.Modes = ownModes()
		default:
			c.Modes = AllModes
		}
	}
	if c.Workloads.Keep {
		if err := canKeep(c.Modes); err != nil {
			faults = append(faults, err)
		}
	}
	if c.Blocks == 0 && !c.UntilResolved {
		c.Blocks = harness.LeastBlocks()
	}
	c.Duration = cmp.Or(c.Duration, 10*time.Second)
	if c.Duration < time.Second {
		fault("--duration %v: want 1s or more", c.Duration)
	}
	c.Margin = cmp.Or(c.Margin, 1.03)
	if !(c.Margin > 1 && c.Margin < 10) {
		fault("--margin %v: want a ratio above 1, such as 1.03", c.Margin)
	}
	c.LoadPercent = cmp.Or(c.LoadPercent, 30)
	if !(c.LoadPercent > 0 && c.LoadPercent <= 90) {
		fault("--load %v: want more than 0 and at most 90 percent", c.LoadPercent)
	}
	c.Client = cmp.Or(c.Client, harness.ClientTenon)
	if c.Client != harness.ClientTenon && c.Client != harness.ClientWrk {
		fault("--client %q: want %s or %s", c.Client, harness.ClientTenon, harness.ClientWrk)
	}
	for _, n := range []struct {
		flag  string
		value int // 0: the default
	}{{"--connections", c.Connections}, {"--be-processes", c.BEProcesses}, {"--be-threads", c.BEThreads}} {
		if n.value < 0 {
			fault("%s %d: want 1 or more", n.flag, n.value)
		}
	}
	c.checkOwn(fault)
	if c.Port < 0 || c.Port > 65535 {
		fault("--port %d: want 1 to 65535", c.Port)
	}
	c.CacheDir = cmp.Or(c.CacheDir, work.CacheDir())
	c.NoClient = c.NoClient || c.Workloads.Self()
	c.Setting = c.Setting.OrDefaults(fault)
	if c.Input != "" && c.Pods == nil {
		path, err := filepath.Abs(c.Input)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			fault("--input %s: %w", c.Input, err)
		}
		c.Input = path
	}
	return c, testbed.RefuseFlags(faults...)
}

// Warmup returns the minimum length of the warm-up of a run. The check for
// stationarity may lengthen it.
func (c Config) Warmup() time.Duration {
	if c.switches() {
		return min(max(c.Duration/4, time.Second), switchWarmup)
	}
	return harness.WarmupOf(c.Duration)
}

// trial returns the length from which the calibration derives that of its trials.
func (c Config) trial() time.Duration {
	if c.switches() {
		return min(c.Duration, 10*time.Second)
	}
	return c.Duration
}
