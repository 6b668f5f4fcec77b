package run

import (
	"context"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
)

// Watermark is cpuSuppressThresholdPercent in the published experiment.
const Watermark = 65

// govern starts Tenon's loop and policies on the real node. They write the
// knobs of the mode. The lab itself writes no knobs.
func (b *machine) govern(ctx context.Context, p testbed.Pods, t report.ModeSpec) (*testbed.AgentRunner, error) {
	if b.Agent != "" {
		return b.Tenond(ctx, colocationTenond(p, t))
	}
	if t.AllFeatures {
		limit := batchLimit(t, p.Tested.Len())
		return b.Site.RunAgent(ctx, bounded(p.Workloads(), limit), allFeatures(p, t), t.Suppress)
	}
	return b.Site.RunAgent(ctx, p.Workloads(), policies(p, t), t.Suppress)
}

// policies returns the configuration of Tenon's policies in a mode without the
// features of the published experiment.
func policies(p testbed.Pods, t report.ModeSpec) policy.Config {
	return policy.Config{
		CPUQOS: testbed.IsolationOf(t), NodeCPUs: facts.NodeCPUs{CPUs: p.Tested},
		Suppress: suppress.Config{Enable: t.Suppress, ThresholdPercent: Watermark},
	}
}

// colocationTenond returns the configuration of tenond in a mode of the
// colocation experiment.
func colocationTenond(p testbed.Pods, t report.ModeSpec) testbed.TenondConfig {
	var set string
	if t.AllFeatures {
		_, n := thirdMode()
		set = string(suppressPolicy(t, n.Policy))
	}
	return testbed.TenondConfig{
		SuppressPolicy: set, Cache: t.AllFeatures,
		CPUs: p.Tested, Suppress: t.Suppress, Threshold: Watermark, Isolate: true, Mechanism: t.Mechanism, NoSlices: t.NoSlices, Period: testbed.GovernPeriod,
		Rules: []testbed.TenondRule{{Name: p.ServiceName(), Class: node.LS, Cgroup: p.NGINXPod()}, {Name: p.JobName(), Class: node.BE, Cgroup: p.JobPod(), BatchCPU: batchLimit(t, p.Tested.Len())}},
	}
}
