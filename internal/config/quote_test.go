package config

import (
	"strings"
	"testing"
)

// TestFaultsQuoteLittle damages a configuration with 16 KiB of one byte: instead of
// each value, and of each line.
func TestFaultsQuoteLittle(t *testing.T) {
	text := "version: 1\nsuppress:\n  cpuThreshold: 65%\nevict:\n  memoryThreshold: 70%\nrules:\n- name: a\n  class: LS\n  units: [nginx.service]\n  cpu: 2\n  memory: 1Gi\n" +
		"  objective:\n    runQueueDelay: 2ms\n  io:\n    weight: 100\n- name: b\n  class: BE\n  containers: [a=b]\nslices:\n- name: a\n  cpus: 0-3\ncontainerSockets: [docker:///run/docker.sock]\n"
	lines := strings.SplitAfter(text, "\n")
	for _, fill := range []string{"\x00", "x", "9", "\u00ad"} {
		long := strings.Repeat(fill, 16<<10)
		for i, line := range lines {
			damaged := append([]string{}, lines...)
			for _, bad := range []string{long + "\n", long + ": " + long + "\n", beforeColon(line) + ": " + long + "\n", beforeColon(line) + ": [" + long + "]\n"} {
				damaged[i] = bad
				_, faults := Parse([]byte(strings.Join(damaged, "")))
				for _, f := range faults {
					if len(f.String()) > 2000 {
						t.Fatalf("line %d of %.40q: a fault of %d bytes: %.300q", i+1, bad, len(f.String()), f.String())
					}
				}
			}
		}
	}
}

func beforeColon(line string) string {
	before, _, _ := strings.Cut(strings.TrimRight(line, "\n"), ":")
	return before
}
