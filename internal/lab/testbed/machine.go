package testbed

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/node"
)

// Describe describes the machine of the experiment. Fields that cannot be read
// stay empty.
func Describe(fs proc.FS, t node.Topology, can node.Capabilities, version int) report.Machine {
	m := ThisMachine(fs)
	m.CPUs, m.SMT, m.CgroupVersion, m.Mechanisms = len(t.CPUs), t.SMT(), version, mechanisms(can)
	return m
}

// ThisMachine describes the machine on which the lab runs.
func ThisMachine(fs proc.FS) report.Machine {
	m := report.Machine{OS: osName("/"), Governor: line(filepath.Join(fs.Sys, "devices/system/cpu/cpu0/cpufreq/scaling_governor"))}
	m.Kernel, _ = fs.KernelRelease() //nolint:errcheck // empty: not known
	if info, err := fs.CPUInfo(); err == nil {
		m.CPUModel = info.Model
		m.Virtualization = virtualization(fs, info.Virtual())
		m.Emulated = Emulated(fs)
	}
	if memory, err := fs.MemInfo(); err == nil {
		m.MemoryBytes = int64(memory.Total)
	}
	return m
}

// mechanisms lists the isolation mechanisms that the modes with Tenon use, in
// the order of the policy.
func mechanisms(can node.Capabilities) []string {
	list := []string{string(isolation.Mechanisms(Pinned(""), can, node.Isolation{}).Mechanism)}
	switch list[0] {
	case string(node.MechanismWeight):
		list[0] = "cpu.weight, the least (no cpu.idle: " + can[node.FeatureCPUIdle].Why + ")"
	case string(node.MechanismIdle):
	default:
		list = append(list, "cpu.idle below it")
	}
	return append(list, "CPU suppress at 65 % ("+string(report.Tenon65)+")")
}

func line(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// osName returns PRETTY_NAME of os-release(5).
func osName(root string) string {
	for _, path := range []string{"etc/os-release", "usr/lib/os-release"} {
		for l := range strings.Lines(line(filepath.Join(root, path))) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(l), "PRETTY_NAME="); ok {
				if name, err := strconv.Unquote(value); err == nil {
					return name
				}
				return value
			}
		}
	}
	return ""
}

// hypervisors maps words in the DMI tables to names.
var hypervisors = []struct{ word, name string }{
	{"kvm", "kvm"}, {"qemu", "kvm"}, {"vmware", "vmware"}, {"virtualbox", "virtualbox"}, {"xen", "xen"},
	{"amazon ec2", "amazon"}, {"google", "google"}, {"microsoft", "hyper-v"}, {"alibaba", "alibaba"}, {"openstack", "openstack"},
}

// emulator is a kind of virtualization in which a program emulates the CPU:
// QEMU without KVM.
const emulator = "qemu"

// Emulated reports whether this machine is emulated by a program.
func Emulated(fs proc.FS) bool {
	info, err := fs.CPUInfo()
	return err == nil && virtualization(fs, info.Virtual()) == emulator
}

// virtualization returns the name of the hypervisor. virtual is true if the CPU
// reports a hypervisor (CPUID.1:ECX.31).
func virtualization(fs proc.FS, virtual bool) string {
	if !virtual {
		return "none"
	}
	dmi := filepath.Join(fs.Sys, "class/dmi/id")
	text := strings.ToLower(strings.Join([]string{
		line(filepath.Join(dmi, "sys_vendor")), line(filepath.Join(dmi, "product_name")),
		line(filepath.Join(fs.Sys, "hypervisor/type")),
	}, " "))
	for _, h := range hypervisors {
		if !strings.Contains(text, h.word) {
			continue
		}
		// If the hypervisor is KVM and the kernel has guest support, the kernel
		// offers kvm-clock.
		clocks := line(filepath.Join(fs.Sys, "devices/system/clocksource/clocksource0/available_clocksource"))
		if h.word == emulator && clocks != "" && !strings.Contains(clocks, "kvm-clock") {
			return emulator
		}
		return h.name
	}
	return "some hypervisor"
}
