package run

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/node"
)

// AllModes lists the default modes of the colocation experiment, in the order
// of the tables.
var AllModes = []report.Mode{
	report.Exclusive, report.ExclusiveAA, report.ExclusiveWarm,
	report.Default, report.Default65, report.Burstable,
	report.Tenon, report.Tenon65, report.Solo,
}

// NamedModes lists modes that run only if the user names them: other
// baselines, the control of modes that take turns, a mode that shows the effect of long slices, and the published third mode.
var NamedModes = []report.Mode{report.ExclusiveAwake, report.Frozen, report.FrozenAA, report.TenonNoSlices, report.SLOAware, report.SLOAwareQuota}

// SizedModes lists the modes with CPU requests of three sizes. They run only if the user
// names them.
var SizedModes = []report.Mode{report.BurstableEighth, report.BurstableHalf, report.BurstableFull}

// CampaignModes lists the modes of a campaign, which are switched: everything that a
// cluster can do with batch work, and the service alone.
var CampaignModes = slices.Concat([]report.Mode{report.Frozen, report.Default}, SizedModes, []report.Mode{report.Tenon})

// PublishedModes lists the modes of the published experiment: the baseline, twice, the
// control at the CPU use of the third mode, and the third mode with both ways of CPU
// suppress.
var PublishedModes = []report.Mode{report.Exclusive, report.ExclusiveAA, report.Default65, report.SLOAware, report.SLOAwareQuota}

// PublishedKernelModes lists the groups of the published experiment on CPU priorities in
// the kernel: the baseline, twice, the control, and each mechanism that gives priorities.
// A mechanism that the node does not support is left out.
var PublishedKernelModes = slices.Concat([]report.Mode{report.Exclusive, report.ExclusiveAA, report.Burstable}, report.MechanismModes)

// Modes lists every mode of the colocation experiment: the default
// modes, NamedModes, SizedModes, the modes without cgroups, and the modes in which Tenon
// uses one given isolation mechanism.
var Modes = slices.Concat(AllModes, NamedModes, SizedModes, report.SessionModes, report.MechanismModes)

// controls lists the default modes of the kernel-qos experiment that use no
// isolation mechanism.
var controls = []report.Mode{report.Exclusive, report.ExclusiveAA, report.Default, report.Burstable}

// KernelQOSModes lists every mode of the kernel-qos experiment.
var KernelQOSModes = slices.Concat(controls, []report.Mode{report.ExclusiveWarm, report.ExclusiveAwake}, report.MechanismModes)

// kernelQOSDefaults returns c with the defaults of the kernel-qos experiment.
// With them the experiment takes less than half an hour.
func (c Config) kernelQOSDefaults() Config {
	if c.Blocks == 0 && !c.UntilResolved {
		c.Blocks, c.MaxTime = harness.LeastBlocks(), cmp.Or(c.MaxTime, 25*time.Minute)
	}
	c.Duration = cmp.Or(c.Duration, 5*time.Second)
	return c
}

// modesHere returns the modes to run, and the skipped modes with the reasons.
// If no mode is requested, the modes to run are those of the kernel-qos
// experiment that the node supports. If the node does not support a requested
// mode, modesHere returns an error, or skips it if leaveOut is set.
func modesHere(asked []report.Mode, leaveOut bool, carries func(node.Mechanism) node.Answer) (modes []report.Mode, skipped []colocation.Skipped, err error) {
	for _, m := range asked {
		if mechanism := m.Spec().Mechanism; mechanism != "" {
			switch a := carries(mechanism); {
			case a.Verdict == node.Yes:
			case leaveOut:
				skipped = append(skipped, colocation.Skipped{Mode: m, Why: a.Why})
				continue
			default:
				return nil, nil, fmt.Errorf("mode %s: this node does not support the isolation mechanism %s: %s", m, mechanism, a.Why)
			}
		}
		modes = append(modes, m)
	}
	if len(asked) > 0 {
		return modes, skipped, nil
	}
	modes = slices.Clone(controls)
	for _, m := range report.MechanismModes {
		a := carries(m.Spec().Mechanism)
		switch {
		case a.Verdict != node.Yes:
			skipped = append(skipped, colocation.Skipped{Mode: m, Why: a.Why})
		case m == report.TenonWeight && carries(node.MechanismIdle).Verdict == node.Yes:
			skipped = append(skipped, colocation.Skipped{Mode: m, Why: fmt.Sprintf("it equals %s, because the kubelet gives pods without CPU requests the least weight; name it with --modes to run it", report.Default)})
		default:
			modes = append(modes, m)
		}
	}
	return modes, skipped, nil
}
