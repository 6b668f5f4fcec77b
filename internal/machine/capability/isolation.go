package capability

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
)

// probeSchedExt answers whether the kernel could load Tenon's BPF scheduler. It
// does not load the scheduler, because the policy decides whether to load it.
func (p prober) probeSchedExt() node.Answer {
	dir := filepath.Join(p.FS.Sys, "kernel/sched_ext")
	if a := exists(dir); a.Verdict != node.Yes {
		return a
	}
	variant, err := scx.Probe()
	switch {
	case errors.Is(err, scx.ErrUnsupported):
		return no("%v", err)
	case err != nil:
		return unknown("%v", err)
	}
	return yes("%s exists, and the kernel has the interface of Linux %s", dir, variant)
}

// withSwitches corrects the answers about vendor marks and core scheduling,
// because sysctls can switch both off. Tenon itself may switch on the marks.
// Only the owner may switch on core scheduling.
func (p prober) withSwitches(can node.Capabilities) {
	on := func(name string) (value string, has bool) {
		text, err := os.ReadFile(filepath.Join(p.FS.Proc, "sys/kernel", name))
		return strings.TrimSpace(string(text)), err == nil
	}
	core, hasCore := on("sched_core")
	if a := can[node.FeatureGroupIdentity]; a.Verdict == node.Yes {
		heeded, has := on("sched_group_identity_enabled")
		switch {
		case hasCore && core != "0":
			a = no("%s, but kernel.sched_core is %s, and both together lock up some kernels", a.Why, core)
		case has && heeded != "1":
			a.Why += "; kernel.sched_group_identity_enabled is " + heeded + " and will be turned on"
		}
		can[node.FeatureGroupIdentity] = a
	}
	if a := can[node.FeatureCoreSched]; a.Verdict == node.Yes && hasCore && core == "0" {
		can[node.FeatureCoreSched] = no("%s, but kernel.sched_core is 0", a.Why)
	}
}
