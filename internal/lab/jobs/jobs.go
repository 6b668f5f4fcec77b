// Package jobs describes batch jobs that run beside each other on a node: what each
// job requested, when it ran, and what it used. It reads and writes the table of
// the published transcoding experiment (one row for each job, twelve columns). It
// also reads the logs of ffmpeg containers. From the rows it computes how many jobs
// ran beside each other. It finds out whether the CPU limit, the memory, the
// concurrency or the CPUs of all jobs together explain the cost of a job.
package jobs

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Job is one job that ran until it had done its work.
type Job struct {
	Host        string
	Type        string        // names the environment or the strategy, such as "aws"
	Concurrency int           // number of jobs that were requested at once, on all nodes together
	CPU         unit.MilliCPU // the request of the job; for most types it is the limit, too
	Memory      unit.Bytes
	Index       int    // number of the job in its wave
	Pod         string // random part of the pod's name, namespace and container, as published
	Container   int    // number in the name of the container
	ContainerID string // 64 hexadecimal digits
	In, Out     time.Time
	Source      string // the film that was read
	// Precision is the resolution of In and Out. In published tables it is a
	// second.
	Precision time.Duration
	// Extra has values that are known only for jobs that the lab measured.
	Extra Extra
}

// Duration returns how long the job ran.
func (j Job) Duration() time.Duration { return j.Out.Sub(j.In) }

// Seconds returns how long a whole job takes. Usually this is Duration. But a
// row may describe only a part of a job, such as a few seconds of work that
// repeats without end. Then Seconds is the time that the work of a whole job
// (Extra.JobWork) would take at the rate of this part.
func (j Job) Seconds() float64 { return j.Duration().Seconds() * j.scale() }

// scale returns the work of a whole job, divided by the work in the row.
func (j Job) scale() float64 {
	part, whole := j.Extra.Work.Or(0), j.Extra.JobWork.Or(0)
	if part <= 0 || whole <= 0 {
		return 1
	}
	return whole / part
}

// CPUSeconds returns the CPU time of a whole job in seconds. measured is true
// if the time was measured. Otherwise it is computed as limit × duration, which
// is correct only for a job that used its whole limit. It is NaN for a job
// without a limit (Cell.IsRequest) whose time was not measured.
func (j Job) CPUSeconds() (seconds float64, measured bool) {
	if v, ok := j.Extra.CPUSeconds.Value(); ok {
		return v * j.scale(), true
	}
	if j.CPU == 0 || j.Cell().IsRequest() {
		return math.NaN(), false
	}
	return j.CPU.Cores() * j.Seconds(), false
}

// Extra has the columns that the lab adds to the published ones. If a value was
// not measured, it is absent.
type Extra struct {
	Strategy string // how the CPUs were divided among the jobs; empty: not known
	Block    int    // the block of the experiment, from 1
	Run      int    // the run in the experiment, from 1
	Slice    unit.CPUSet
	Threads  int // number of threads given to the job; 0: the program chose
	// LocalJobs is the number of jobs that were running on the node during this
	// job, including itself. If it is absent, the number is computed from the
	// times of the jobs.
	LocalJobs node.Maybe[float64]
	// Work is the number of units, such as frames, that the job did between In and
	// Out. JobWork is the number of units that a whole job has. The two differ if
	// the row is a part of an endless job. If they are absent, the row is a whole
	// job.
	Work, JobWork    node.Maybe[float64]
	QueueSeconds     node.Maybe[float64] // from In until it began to run
	LateSeconds      node.Maybe[float64] // time from the planned start of the wave's jobs until In
	CPUSeconds       node.Maybe[float64]
	Periods          node.Maybe[int64] // of the quota, cpu.stat nr_periods
	ThrottledPeriods node.Maybe[int64] // cpu.stat nr_throttled
	ThrottledSeconds node.Maybe[float64]
	WaitSeconds      node.Maybe[float64] // time that its threads waited for a CPU
	// These counters cover the process and all its descendants. The last three
	// need a performance monitoring unit.
	Migrations, Switches              node.Maybe[float64]
	Cycles, Instructions, CacheMisses node.Maybe[float64]
	PeakMemory                        node.Maybe[unit.Bytes]
	Void                              string // why the row does not count; empty: it counts
	// Unread is true for a void job whose log is lost or damaged. Nothing says that
	// such a job failed, so it counts among the jobs that ran beside the others.
	Unread bool
}

// A Cell is a set of jobs under the same conditions.
type Cell struct {
	Type        string
	Strategy    string
	Concurrency int
	CPU         unit.MilliCPU
	Memory      unit.Bytes
	Threads     int
}

// Cell returns the conditions under which the job ran.
func (j Job) Cell() Cell {
	return Cell{j.Type, j.Extra.Strategy, j.Concurrency, j.CPU, j.Memory, j.Extra.Threads}
}

// Compare orders cells by their columns, from left to right.
func (c Cell) Compare(o Cell) int {
	return cmp.Or(cmp.Compare(c.Type, o.Type), cmp.Compare(c.Strategy, o.Strategy), cmp.Compare(c.CPU, o.CPU),
		cmp.Compare(c.Concurrency, o.Concurrency), cmp.Compare(c.Memory, o.Memory), cmp.Compare(c.Threads, o.Threads))
}

// cpuOfNode matches a part of a type such as aws-16cx1: one pod may use the 16 CPUs of
// its node. The CPU of such a job is what it requests.
var cpuOfNode = regexp.MustCompile(`(^|-)\d+cx\d+(-|$)`)

// IsRequest reports whether the CPU of the jobs is only what they requested, and no
// limit: they ran without one, or with a burst above it. Nothing then says how much
// CPU time they used, unless it was measured.
func (c Cell) IsRequest() bool {
	switch cmp.Or(c.Strategy, c.Type) {
	case "unbounded", "unbounded-aa", "burst":
		return true
	}
	return c.Strategy == "" && cpuOfNode.MatchString(c.Type)
}

// Demand returns how much CPU the jobs of the cell request together, if all of
// them run on one node.
func (c Cell) Demand() unit.MilliCPU { return c.CPU * unit.MilliCPU(c.Concurrency) }

// Counted returns the jobs that are not void, sorted by their start.
func Counted(all []Job) []Job {
	counted := slices.DeleteFunc(slices.Clone(all), func(j Job) bool { return j.Extra.Void != "" })
	slices.SortStableFunc(counted, func(a, b Job) int { return cmp.Or(a.In.Compare(b.In), cmp.Compare(a.Index, b.Index)) })
	return counted
}
