package run

import (
	"cmp"
	"fmt"
	"time"

	memoryqos "tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/memory"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Modes lists every mode of the memory experiment, in the order of the
// tables.
var Modes = []report.Mode{report.Exclusive, report.ExclusiveAA, report.Default, report.Tenond}

// Config configures a memory experiment. The zero value of a field
// selects its default, which the field's comment names. There are 12 blocks, from
// which a verdict is possible.
type Config struct {
	testbed.Setting
	Modes    []report.Mode // default: Modes
	Duration time.Duration // of the measured part of a run (default: 6 s)
	// Set is the size of the service's working set: the files that the service
	// reads at random. The default is 256 MiB. All other sizes are derived from
	// it (see sizesOf).
	Set unit.Bytes
	// Rate is the offered load in requests per second. The default is 500.
	Rate float64
	// Data is the directory for the files that the programs read. It must be on
	// a block device and not in memory. The default is /var/tmp.
	Data string
	Port int // on 127.0.0.1 (default: a free one)
}

// minSet is the smallest useful working set, in bytes. With a smaller one, the
// memory of nginx itself would matter, too.
const minSet = 32 << 20

func (c Config) orDefaults() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(c.Modes) == 0 {
		c.Modes = Modes
	}
	c.Blocks = cmp.Or(c.Blocks, harness.LeastBlocks())
	c.Duration = cmp.Or(c.Duration, 6*time.Second)
	if c.Duration < time.Second {
		fault("--duration %v: want 1s or more", c.Duration)
	}
	c.Set = cmp.Or(c.Set, 256<<20)
	if c.Set < minSet || c.Set > 1<<40 {
		fault("--set %v: want 32Mi or more", c.Set)
	}
	c.Rate = cmp.Or(c.Rate, 500)
	if !(c.Rate > 0 && c.Rate <= 1e6) {
		fault("--rate %v: want more than 0 requests per second", c.Rate)
	}
	c.Data = cmp.Or(c.Data, "/var/tmp")
	if c.Port < 0 || c.Port > 65535 {
		fault("--port %d: want 1 to 65535", c.Port)
	}
	c.Setting = c.Setting.OrDefaults(fault)
	return c, testbed.RefuseFlags(faults...)
}

// warmup returns the warm-up, which is the same as in the colocation
// experiment.
func (c Config) warmup() time.Duration { return harness.WarmupOf(c.Duration) }

// sizesOf divides memory according to the size of the working set. Service and
// batch work together demand more than two and a half times the limit:
//
//	service    set      size of its files; the memory request is 5/4 set, which includes nginx and the kernel
//	parent     2 set    limit of service and batch work together
//	batch      4 set    size of the file that the batch work reads; it also holds set/4 of anonymous memory
//
// On cgroup v2 the memory limit of the batch work is the size of its file, and
// memory.high is throttlingPercent of that limit. Cgroup v1 has no memory.high. There
// the limit is the part of the parent's limit that the service does not request.
func sizesOf(set unit.Bytes, version int) memory.Setup {
	s := memory.Setup{
		Set: set, Pages: int(set / work.PageBytes), PageBytes: work.PageBytes,
		Parent: 2 * set, Request: set / 4 * 5,
		HogFile: 4 * set, HogHeld: set / 4, HogLimit: 4 * set,
		MinPercent: 50, LowPercent: 100,
	}
	left := s.Parent - s.Request
	if version == 1 {
		s.HogLimit = left
		return s
	}
	s.ThrottlingPercent = int(100 * left / s.HogLimit)
	return s
}

// memoryPolicy returns the configuration of the memory policies in mode tenond.
// It needs no case for cgroup v1: the policies skip knobs that the kernel
// lacks.
func memoryPolicy(s memory.Setup) memoryqos.Config {
	m := memoryqos.Config{Classes: map[node.Class]memoryqos.Shares{
		node.LS: {MinPercent: unit.Percent(s.MinPercent), LowPercent: unit.Percent(s.LowPercent)},
	}}
	if s.ThrottlingPercent > 0 {
		m.Classes[node.BE] = memoryqos.Shares{ThrottlingPercent: unit.Percent(s.ThrottlingPercent)}
	}
	return m
}

// memoryRules returns the rules for the two pods in mode tenond.
func memoryRules(p testbed.Pods, s memory.Setup) []testbed.TenondRule {
	return []testbed.TenondRule{
		{Name: "nginx", Class: node.LS, Cgroup: p.NGINXPod(), Request: s.Request},
		{Name: "hog", Class: node.BE, Cgroup: p.JobPod(), Limit: s.HogLimit},
	}
}
