package run

import (
	"cmp"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
)

// Modes lists the modes of the reaction experiment in the order of the
// tables. Mode psi needs cgroup v2.
var Modes = []report.Mode{report.Events, report.PSI, report.Ticks, report.IdleBE}

// Config configures a reaction experiment. The zero value of a field
// selects its default, which the field's comment names. Agent has no default,
// because the experiment measures a real tenond. There are 12 blocks, and each mode
// makes a part of its steps in each block.
type Config struct {
	testbed.Setting
	Modes []report.Mode // default: all modes that this kernel supports
	Steps int           // number of load steps in mode events (default: 500)
	// Contrast is the number of steps in each mode other than events. The
	// default is a tenth of Steps.
	Contrast int
	Step     time.Duration // length of a step (default: 250 ms, plus reactionPeriod in modes ticks and psi)
	// LeastPause and MostPause bound the time between two steps. The defaults
	// are 900 ms and 1.3 s. tenond widens the batch work only at periodic
	// ticks, so after a shorter pause the batch work would often still be
	// narrow.
	LeastPause, MostPause time.Duration
	// Objective is the longest run-queue delay that the service accepts. By
	// default there is none. After a step that misses the objective, the batch
	// work stays narrow for seconds.
	Objective time.Duration
	lead      time.Duration // time before the first step (default: reactionLead)
}

const (
	reactionPeriod = time.Second          // time between ticks of tenond
	reactionLead   = 3 * time.Second      // time before the first step, in which the bound of the batch work settles
	cyclePeriod    = 2 * time.Millisecond // time between two starts of work of the service in a step
	cycleWork      = cyclePeriod * 3 / 5
	// stepMark is a CPU use in percent of the tested CPUs. If all work together
	// uses more, Tenon narrows BE. During a step the service alone uses more,
	// so the batch work gets only its minimum.
	stepMark = 50
)

func (c Config) orDefaults() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	c.Blocks = cmp.Or(c.Blocks, harness.LeastBlocks())
	c.Steps = cmp.Or(c.Steps, 500)
	c.Contrast = cmp.Or(c.Contrast, max(c.Steps/10, 1))
	if c.Steps < 0 || c.Contrast < 0 {
		fault("--steps %d --contrast %d: want 1 or more", c.Steps, c.Contrast)
	} else {
		// Each mode needs at least one step in each block.
		c.Blocks = min(c.Blocks, c.Steps, c.Contrast)
	}
	c.Step = cmp.Or(c.Step, 250*time.Millisecond)
	if c.Step < 20*time.Millisecond || c.Step > time.Minute {
		fault("--step %v: want 20ms to 1m", c.Step)
	}
	if c.LeastPause == 0 && c.MostPause == 0 {
		c.LeastPause, c.MostPause = 900*time.Millisecond, 1300*time.Millisecond
	}
	if c.LeastPause <= 0 || c.MostPause < c.LeastPause {
		fault("--min-pause %v --max-pause %v: want more than 0, and no more than the most", c.LeastPause, c.MostPause)
	}
	if c.Objective < 0 {
		fault("--objective %v: want 0 or more", c.Objective)
	}
	c.lead = cmp.Or(c.lead, reactionLead)
	if c.Agent == "" {
		fault("no tenond: the reaction experiment needs the program tenond")
	}
	c.Setting = c.Setting.OrDefaults(fault)
	return c, testbed.RefuseFlags(faults...)
}

// steps returns how many steps a mode has in all blocks together.
func (c Config) steps(m report.Mode) int {
	if m == report.Events {
		return c.Steps
	}
	return c.Contrast
}

// stepsInBlock returns how many steps a mode has in a block. The first block
// has the number 1.
func (c Config) stepsInBlock(m report.Mode, block int) int {
	n := c.steps(m)
	return n*block/c.Blocks - n*(block-1)/c.Blocks
}

// length returns the length of a step. In mode ticks it is longer, because
// tenond reacts only at a periodic tick. In mode psi it is longer, because the
// trigger has a window of half a second.
func (c Config) length(m report.Mode) time.Duration {
	if m == report.Ticks || m == report.PSI {
		return c.Step + reactionPeriod
	}
	return c.Step
}

// estimate returns the expected duration of the experiment.
func (c Config) estimate() time.Duration {
	var all time.Duration
	for _, m := range c.Modes {
		all += time.Duration(c.steps(m)) * (c.length(m) + (c.LeastPause+c.MostPause)/2)
		all += time.Duration(c.Blocks) * (c.lead + time.Second)
	}
	return all
}

// threshold converts stepMark to a percentage of all CPUs.
func (b *environment) threshold() int {
	return max(stepMark*b.Place.Tested.Len()/max(len(b.Topology.CPUs), 1), 1)
}

// tenondConfig returns the configuration of tenond in a mode. The batch work
// has the same weight as the service, except in mode idle.
func (b *environment) tenondConfig(m report.Mode) testbed.TenondConfig {
	return testbed.TenondConfig{
		Period: reactionPeriod, Suppress: true, Threshold: b.threshold(), Isolate: m == report.IdleBE,
		NoDelays: m == report.Ticks || m == report.PSI, NoPressure: m == report.Ticks,
		Rules: []testbed.TenondRule{
			{Name: "stepper", Class: node.LS, Cgroup: b.service(), Objective: b.Objective},
			{Name: "spinner", Class: node.BE, Cgroup: b.job()},
		},
	}
}

func (b *environment) service() node.CgroupPath { return b.Root.Join("service") }
func (b *environment) job() node.CgroupPath     { return b.Root.Join("batch") }
