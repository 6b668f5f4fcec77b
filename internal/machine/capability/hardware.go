package capability

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/exchange"
	"tenon.sh/tenon/internal/model/node"
)

// probeHardware probes the processor and its counters.
func (p prober) probeHardware(can node.Capabilities) {
	can[node.FeaturePerfCounters] = probePerf()
	can[node.FeatureBPF] = p.probeBPF()
	can[node.FeatureBPFTCP] = p.probeTCP()
	if t, err := p.Topology.Read(time.Now()); err != nil {
		can[node.FeatureHardwareSMT] = unknown("%v", err)
	} else {
		can[node.FeatureHardwareSMT] = answerSMT(t)
	}
}

func answerSMT(t node.Topology) node.Answer {
	if t.SMT() {
		return yes("topology/thread_siblings_list shows cores with several threads")
	}
	return no("topology/thread_siblings_list shows one thread a core")
}

// Follow returns the answers for the present topology t of a node. The argument
// can holds its earlier answers, which Follow does not change. SMT can be
// switched on and off at run time, and the kernel refuses core scheduling
// without SMT. All other answers stay.
func (n Node) Follow(can node.Capabilities, t node.Topology) node.Capabilities {
	was, probed := can[node.FeatureHardwareSMT]
	smt := answerSMT(t)
	// After a sibling comes online, the kernel refuses core scheduling for a
	// moment. So Follow asks again until the kernel accepts it.
	if !probed || smt == was && (smt.Verdict == node.No || can.Has(node.FeatureCoreSched)) {
		return can
	}
	now := node.Capabilities{node.FeatureHardwareSMT: smt, node.FeatureCoreSched: probeCoreSched()}
	prober{Node: n}.withSwitches(now)
	if smt == was && now[node.FeatureCoreSched] == can[node.FeatureCoreSched] {
		return can
	}
	can = maps.Clone(can)
	maps.Copy(can, now)
	return can
}

// probePerf opens a counter of CPU cycles for this process
// (perf_event_open(2)). ENOENT means that the hardware has no such event, as in
// most VMs.
func probePerf() node.Answer {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	attr.Size = unix.PERF_ATTR_SIZE_VER5
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return answerRefused("perf_event_open of CPU cycles", err, unix.ENOENT, unix.EOPNOTSUPP, unix.ENOSYS)
	}
	_ = unix.Close(fd)
	return yes("perf_event_open of CPU cycles succeeds")
}

// probeBPF answers whether tracing programs can be loaded. They need the
// kernel's BTF (type information).
func (p prober) probeBPF() node.Answer {
	if p.Only != "" {
		return unknown("not asked: cgroup %s needs no tracing", p.Only)
	}
	btf := filepath.Join(p.FS.Sys, "kernel/btf/vmlinux")
	if a := exists(btf); a.Verdict != node.Yes {
		return a
	}
	// This program does nothing. It attaches to the tracepoint at which Tenon
	// measures run-queue delay. The library's own probe attaches to none, and
	// some kernels refuse such a program with a permission error.
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return unknown("load a tracing program: %v", err)
		}
		return answerRefused("load a tracing program", err, ebpf.ErrNotSupported)
	}
	_ = program.Close()
	return yes("%s exists and a tracing program loads", btf)
}

// probeTCP answers whether requests can be measured at sockets. It loads the
// programs and attaches none.
func (p prober) probeTCP() node.Answer {
	if p.Only != "" {
		return unknown("not asked: cgroup %s needs no tracing", p.Only)
	}
	probe, err := exchange.Open(exchange.Options{CgroupVersion: 2}) // any version has the same programs
	if err != nil {
		return answerRefused("load", err, exchange.ErrUnsupported)
	}
	hook := probe.Hook()
	_ = probe.Close()
	return yes("the %s tcp_sendmsg_locked shows answers", hook)
}
