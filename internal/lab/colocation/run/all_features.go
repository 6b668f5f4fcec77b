package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/examples"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// publishedBatch is the batch-cpu of the published pod, on a node with as many CPUs.
const publishedBatch, publishedCPUs = 70, 104

// thirdMode returns the data of the ConfigMap of the published third mode, and the
// configuration that tenond makes of it. Both are part of the program.
func thirdMode() (data map[string]string, n config.NodeConfig) {
	data, err := config.ReadConfigMap(examples.ThirdMode)
	if err != nil {
		panic(err)
	}
	cluster, faults := config.ParseConfigMap(data)
	n, more := cluster.Node(nil, nil)
	if faults = append(faults, more...); len(faults) > 0 {
		panic(fmt.Sprintf("the example for the third mode: %v", faults))
	}
	return data, n
}

// suppressPolicy returns how CPU suppress bounds the batch work in a mode with all
// features. The ConfigMap names no policy, so it has the default, which is CPU sets.
func suppressPolicy(t report.ModeSpec, of policy.Config) suppress.Policy {
	if t.Quota {
		return suppress.ByQuota
	}
	return of.Suppress.Policy
}

// allFeatures returns the policies of the published third mode on this machine. It has
// no trials, as no mode of the lab has: they would begin only after a minute.
func allFeatures(p testbed.Pods, t report.ModeSpec) policy.Config {
	_, n := thirdMode()
	c := n.Policy
	c.Suppress.Policy = suppressPolicy(t, c)
	c.CPUQOS, c.NodeCPUs, c.Overcommit = testbed.Pinned(t.Mechanism), facts.NodeCPUs{CPUs: p.Tested}, policy.Config{}.Overcommit
	return c
}

// batchLimit returns the part of the tested CPUs that the batch work may use in a mode:
// its batch resources, in the proportion of the published pod. 0: no limit.
func batchLimit(t report.ModeSpec, tested int) unit.MilliCPU {
	if !t.AllFeatures {
		return 0
	}
	return unit.CPUs(tested) * publishedBatch / publishedCPUs / 10 * 10
}

// bounded gives the batch work its batch resources.
func bounded(all []node.Workload, limit unit.MilliCPU) []node.Workload {
	all = slices.Clone(all)
	for i := range all {
		if limit > 0 && all[i].Class == node.BE {
			all[i].CPULimit = node.Some(limit)
		}
	}
	return all
}

// layAllFeatures lays the settings of the published ConfigMap over those of s, in which
// everything is off. It writes the defaults that a cluster could change, too.
func (s strategy) layAllFeatures(t report.ModeSpec) {
	data, n := thirdMode()
	delete(s["resource-qos-config"], "lsrClass") // the ConfigMap does not name it, and no pod has this class
	for key, text := range data {
		var content object
		if err := json.Unmarshal([]byte(strings.TrimSpace(text)), &content); err != nil {
			panic(fmt.Sprintf("the example for the third mode: %s: %v", key, err))
		}
		if all, is := content["clusterStrategy"].(map[string]any); is {
			content = all
		}
		s[key] = overlay(s[key], content)
	}
	s["resource-threshold-config"]["cpuSuppressPolicy"] = string(suppressPolicy(t, n.Policy))
}

// defaultAmounts is the colocation-config of the published ConfigMap, with the default
// amounts that it does not name.
func defaultAmounts() object {
	_, n := thirdMode()
	return object{
		"enable":                        n.Policy.Overcommit.Enable,
		"cpuReclaimThresholdPercent":    n.Policy.Overcommit.CPU.ThresholdPercent,
		"memoryReclaimThresholdPercent": n.Policy.Overcommit.Memory.ThresholdPercent,
	}
}

// overlay returns below with the fields of above. Objects in both are merged.
func overlay(below, above object) object {
	merged := object{}
	for k, v := range below {
		merged[k] = v
	}
	for k, v := range above {
		over, is := v.(map[string]any)
		if under, both := merged[k].(object); is && both {
			merged[k] = overlay(under, over)
		} else {
			merged[k] = v
		}
	}
	return merged
}
