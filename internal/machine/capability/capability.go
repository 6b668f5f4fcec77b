// Package capability finds out what this kernel and this hardware can do. Each
// answer is yes, no with the reason, or not known.
package capability

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/blockio"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/model/node"
)

// A Node is the node whose capabilities are probed, with the places of its
// kernel files.
type Node struct {
	FS       proc.FS
	Tree     *cgroup.Tree // nil: the node has no usable cgroups
	NoTree   error        // the reason why Tree is nil
	Topology *topology.Cache
	Devices  *blockio.Devices
	Controls *cachectl.Groups
	// Only is the one cgroup whose knobs matter, or empty. Then Look and Try look for
	// files in this cgroup, which must exist, and not in all others. They leave it
	// unknown whether tracing programs can be loaded: to find out, a process reads all
	// type information of the kernel, which takes more CPU time than all the rest.
	Only node.CgroupPath
	// Journal journals what Try changes. If it is nil, Try does not journal.
	Journal Journal
}

// A Journal records what Try changes for a moment. If this process is killed
// meanwhile, a restore undoes the change.
type Journal interface {
	// RecordGroup is called before a cgroup is made, and Removed after it was
	// removed.
	RecordGroup(node.CgroupPath) error
	Removed(node.CgroupPath) error
	// RecordEnabled is called before a controller is enabled for the children of
	// the root, and ForgetEnabled after it was disabled again.
	RecordEnabled(controller string) error
	ForgetEnabled(controller string) error
}

// unrecorded is the Journal of a Node without one.
type unrecorded struct{}

func (unrecorded) RecordGroup(node.CgroupPath) error { return nil }
func (unrecorded) Removed(node.CgroupPath) error     { return nil }
func (unrecorded) RecordEnabled(string) error        { return nil }
func (unrecorded) ForgetEnabled(string) error        { return nil }

// Look returns what a node can do. It writes nothing. Each answer names the
// file, the system call or the error that decided it, never a version number.
// For a cgroup file, Look looks in existing cgroups. If no cgroup could have
// the file, the answer is "not known".
func Look(n Node) node.Capabilities { return prober{n, false}.all() }

// Try does the same as Look. In addition, it makes a temporary cgroup if
// existing cgroups do not show whether the kernel has a file.
func Try(n Node) node.Capabilities {
	if n.Journal == nil {
		n.Journal = unrecorded{}
	}
	return prober{n, true}.all()
}

// A prober finds out what the kernel of a node can do.
type prober struct {
	Node
	try bool // probes may make a temporary cgroup
}

func (p prober) all() node.Capabilities {
	can := node.Capabilities{}
	p.probeCgroups(can)
	p.probeIO(can)
	p.probeNode(can)
	p.probeTasks(can)
	p.probeHardware(can)
	p.probeResctrl(can)
	p.withSwitches(can)
	return can
}

func yes(format string, args ...any) node.Answer {
	return node.Answer{Verdict: node.Yes, Why: fmt.Sprintf(format, args...)}
}

func no(format string, args ...any) node.Answer {
	return node.Answer{Verdict: node.No, Why: fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) node.Answer {
	return node.Answer{Verdict: node.Unknown, Why: fmt.Sprintf(format, args...)}
}

// exists answers whether a file or directory exists. Without the permission to
// look, the answer is "not known".
func exists(path string) node.Answer {
	_, err := os.Stat(path)
	switch {
	case err == nil:
		return yes("%s exists", path)
	case errors.Is(err, fs.ErrNotExist):
		return no("%s does not exist", path)
	}
	return unknown("%v", err)
}

// answerRefused returns the answer after a failed attempt: no if err is one of
// the errors in clear, and otherwise not known.
func answerRefused(what string, err error, clear ...error) node.Answer {
	for _, c := range clear {
		if errors.Is(err, c) {
			return no("%s: %v", what, err)
		}
	}
	return unknown("%s: %v", what, err)
}

// probeNode probes capabilities of the whole node.
func (p prober) probeNode(can node.Capabilities) {
	psi := filepath.Join(p.FS.Proc, "pressure/cpu")
	can[node.FeaturePSINode] = exists(psi)
	// If the command line of the kernel has psi=0, the file exists but cannot
	// be read.
	if f, err := os.Open(psi); err == nil {
		if _, err := f.Read(make([]byte, 1)); err != nil {
			can[node.FeaturePSINode] = answerRefused("read "+psi, err, syscall.EOPNOTSUPP)
		}
		_ = f.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		can[node.FeaturePSINode] = answerRefused("open "+psi, err, syscall.EOPNOTSUPP)
	}
	can[node.FeatureSchedExt] = p.probeSchedExt()

	self := os.Getpid()
	switch s, err := p.FS.SchedStat(self, self); {
	case errors.Is(err, fs.ErrNotExist):
		can[node.FeatureSchedStat] = no("%v", err)
	case err != nil:
		can[node.FeatureSchedStat] = unknown("%v", err)
	case s.Slices == 0 && s.Run == 0:
		can[node.FeatureSchedStat] = no("/proc/PID/schedstat counts nothing")
	default:
		can[node.FeatureSchedStat] = yes("/proc/PID/schedstat counts run-queue delay")
	}
}

// Fallback describes what Tenon uses if a feature is not available.
func Fallback(m node.Feature) string {
	return cmp.Or(m.Instead(), instead[m])
}

// instead has the texts of the features that no isolation mechanism needs.
var instead = map[node.Feature]string{
	node.FeatureCPUWeight:      "SCHED_IDLE on each BE thread",
	node.FeatureCPUMax:         "CPU sets for BE, in steps of one CPU",
	node.FeatureCPUBurst:       "quota without burst",
	node.FeatureCPUSets:        "affinity of each thread",
	node.FeatureCPUPartition:   "plain CPU sets",
	node.FeatureMemoryLimit:    "nothing: memory of BE is not bounded",
	node.FeatureMemoryProtect:  "limits on BE only; LS memory is not protected from reclaim",
	node.FeatureMemoryReclaim:  "nothing: the kernel reclaims from BE and services alike when memory runs short",
	node.FeaturePSINode:        "run-queue delay of LS threads",
	node.FeaturePSICgroup:      "the node's pressure and run-queue delay of LS threads",
	node.FeatureEEVDFSlice:     "default slices: BE in an idle group is preempted at wake-up anyway, BE that just began in another may delay LS for a slice",
	node.FeatureSchedIdle:      "nice 19",
	node.FeatureSchedFIFO:      "nice -20 for the watchdog, which may then run late on a node that is busy",
	node.FeatureBPF:            "counters of /proc and of cgroups",
	node.FeatureBPFTCP:         "the histograms that services show (source metrics)",
	node.FeaturePerfCounters:   "run-queue delay; cycles and cache misses are not reported",
	node.FeatureResctrlL3:      "CPU sets on another L3 cache, where there is one",
	node.FeatureResctrlMB:      "CPU suppress, which bounds bandwidth only indirectly",
	node.FeatureSchedStat:      "pressure of the LS cgroup, if there is PSI",
	node.FeatureCgroupFreezer:  "SIGTERM and SIGKILL alone: what grows while memory is short is not held",
	node.FeatureHardwareSMT:    "nothing needed: no thread shares a core",
	node.FeatureIOMax:          "nothing: block I/O of BE is not limited",
	node.FeatureIOWeight:       "the weights of the scheduler bfq, where it is on",
	node.FeatureBFQWeight:      "the weights of iocost, where it is on",
	node.FeatureIOLatency:      "limits on BE's block I/O",
	node.FeatureCgroupDelegate: "SCHED_IDLE and nice on the command's own threads",
	node.FeatureCgroupNotes:    "the journal alone: without the state directory, a restore does not know the former values",
}

// count returns a number with its noun, in the singular or the plural.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
