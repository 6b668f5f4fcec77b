package proc

import (
	"slices"
	"strings"
)

// CPUInfo is the kernel's description of the first CPU.
type CPUInfo struct {
	Model string   // empty on architectures that do not report it
	Flags []string // x86 flags, arm64 features
}

// Has reports whether the CPU has the flag.
func (c CPUInfo) Has(flag string) bool { return slices.Contains(c.Flags, flag) }

// Virtual reports whether the CPU flags show a hypervisor. Only x86 has such a
// flag.
func (c CPUInfo) Virtual() bool { return c.Has("hypervisor") }

// CPUInfo reads /proc/cpuinfo.
func (fs FS) CPUInfo() (CPUInfo, error) { return procFile(fs, "cpuinfo", parseCPUInfo) }

// parseCPUInfo reads the first block of lines such as "flags : fpu vme".
// Architectures differ, so no line is required.
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
