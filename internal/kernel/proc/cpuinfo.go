package proc

import (
	"slices"
	"strings"
)

// CPUInfo is what the kernel says about the first CPU.
type CPUInfo struct {
	Model string   // empty on architectures that do not tell
	Flags []string // x86 flags, arm64 features
}

// Has reports whether the CPU has the flag.
func (c CPUInfo) Has(flag string) bool { return slices.Contains(c.Flags, flag) }

// Virtual reports whether the CPU says that it runs under a hypervisor. Only
// x86 tells.
func (c CPUInfo) Virtual() bool { return c.Has("hypervisor") }

// CPUInfo reads /proc/cpuinfo.
func (fs FS) CPUInfo() (CPUInfo, error) { return procFile(fs, "cpuinfo", parseCPUInfo) }

// parseCPUInfo reads the first block of lines such as "flags : fpu vme". No
// line is obligatory: architectures differ.
func parseCPUInfo(text string) (CPUInfo, error) {
	var c CPUInfo
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			c.Model = strings.TrimSpace(value)
		case "flags", "Features":
			c.Flags = strings.Fields(value)
		case "":
			if c.Model != "" || c.Flags != nil {
				return c, nil
			}
		}
	}
	return c, nil
}
