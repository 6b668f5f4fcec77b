package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

func TestARunOnAnotherMechanismIsNoRunOfItsMode(t *testing.T) {
	g := &AgentRunner{selection: node.Selection{Mechanism: node.MechanismIdle, Why: "sched_ext fell"}}
	if err := g.CheckMechanism(node.MechanismSchedExt); err == nil || err.Error() != "not isolated by sched_ext but by cpu.idle: sched_ext fell" {
		t.Errorf("error %v", err)
	}
	for _, r := range []node.Mechanism{"", node.MechanismIdle} {
		if err := g.CheckMechanism(r); err != nil {
			t.Errorf("asked for %q: %v", r, err)
		}
	}
}

func TestTheMechanismIsTakenFromTenondsLog(t *testing.T) {
	g := &AgentRunner{State: "/run/x"}
	ready := make(chan struct{})
	log := &logLines{each: func(l logLine) { g.observeLog(l, ready) }}
	for _, line := range []string{
		`{"level":"INFO","msg":"isolation on the CPU","mechanism":"sched_ext","reason":"the configuration asks for sched_ext"}`,
		`{"level":"INFO","msg":"isolation on the CPU","mechanism":"cpu.idle","reason":"sched_ext fell: stall"}`,
	} {
		if _, err := log.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.CheckMechanism(node.MechanismSchedExt); err == nil || !strings.Contains(err.Error(), "sched_ext fell: stall") {
		t.Errorf("error %v", err)
	}
}

func TestEmulatorIsToldFromAHypervisor(t *testing.T) {
	for name, tt := range map[string]struct {
		vendor, clocks string
		want           string
	}{
		"QEMU alone":    {"QEMU", "tsc hpet acpi_pm", "qemu"},
		"QEMU with KVM": {"QEMU", "kvm-clock tsc acpi_pm", "kvm"},
		"unknown clock": {"QEMU", "", "kvm"},
		"another one":   {"VMware, Inc.", "tsc acpi_pm", "vmware"},
		"no DMI":        {"", "tsc kvm-clock", "some hypervisor"},
	} {
		t.Run(name, func(t *testing.T) {
			sys := t.TempDir()
			for file, text := range map[string]string{
				"class/dmi/id/sys_vendor": tt.vendor,
				"devices/system/clocksource/clocksource0/available_clocksource": tt.clocks,
			} {
				path := filepath.Join(sys, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := virtualization(proc.FS{Sys: sys}, true); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestSiblingsAmongTheTestedCPUsAreSeen(t *testing.T) {
	cores := node.Topology{CPUs: []node.LogicalCPU{{ID: 0, Core: 0}, {ID: 1, Core: 0}, {ID: 2, Core: 1}, {ID: 3, Core: 1}}}
	for tested, want := range map[string]bool{"0-3": true, "0,1": true, "1,2": false, "0": false} {
		if got := (Placement{Tested: set1(t, tested)}).Siblings(cores); got != want {
			t.Errorf("CPUs %s: %v", tested, got)
		}
	}
}
