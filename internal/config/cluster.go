package config

import (
	"maps"
	"reflect"
	"slices"
)

// These are the keys of Koordinator's slo-controller-config and of ACK's ack-slo-config.
const (
	keyThreshold     = "resource-threshold-config"
	keyQOS           = "resource-qos-config"
	keyBurst         = "cpu-burst-config"
	keyColocation    = "colocation-config"
	keySystem        = "system-config"
	keyHostApps      = "host-application-config"
	keyNormalization = "cpu-normalization-config"
	keyAmplification = "resource-amplification-config"
	keyObjective     = "objective-config" // only Tenon has it
	keyBatch         = "batch-config"     // the same
	keyRollout       = "rollout-config"   // the same
)

// A Cluster is the content of a cluster's ConfigMap: settings for all nodes,
// and settings for some nodes. The zero Cluster has the defaults, which enable
// nothing. It stands for a missing ConfigMap.
type Cluster struct {
	threshold     layers[Threshold]
	qos           layers[QOS]
	burst         layers[Burst]
	colocation    layers[Colocation]
	system        layers[System]
	hostApps      layers[HostApplications]
	normalization layers[Normalization]
	amplification layers[Amplification]
	objectives    layers[PodObjectives]
	batch         layers[Batch]
	batchUnread   bool // batch-config has a fault, and no former content was known
	rollout       layers[Rollout]
	rolloutUnread bool // the same of rollout-config, or of colocation-config beside a rollout

	texts   map[string]string
	notices []string
}

// Data returns the texts in force, by key of the ConfigMap. ParseConfigMap
// makes the same Cluster from these texts, and finds no faults in them.
func (c Cluster) Data() map[string]string { return maps.Clone(c.texts) }

// Colocates reports whether colocation-config is enabled for the cluster.
// Otherwise no node has batch resources, because a single node cannot enable
// colocation.
func (c Cluster) Colocates() bool { return c.colocation.all.Enable.Or(false) }

// Objectives returns the limits and the objectives of pods for the whole cluster. Some
// nodes may have others.
func (c Cluster) Objectives() PodObjectives { return c.objectives.all }

// NamesObjectives reports whether the administrator names a namespace in objective-config,
// for all nodes or for some. The labels of a pod are its owner's, so that an entry which
// has only a podSelector names none.
func (c Cluster) NamesObjectives(namespace string) bool {
	names := func(p PodObjectives) bool {
		return slices.ContainsFunc(p.Objectives, func(e ObjectiveEntry) bool { return slices.Contains(e.Namespaces, namespace) })
	}
	return names(c.objectives.all) || slices.ContainsFunc(c.objectives.some, func(l layer[PodObjectives]) bool { return names(l.own) })
}

// GatesBatch reports whether new batch pods get a scheduling gate.
func (c Cluster) GatesBatch() bool { return c.batch.all.Gate.Or(false) }

// LacksBatch reports whether it is not known whether batch pods get a scheduling gate:
// batch-config has a fault and no former content was known, or there is no ConfigMap.
func (c Cluster) LacksBatch() bool { return c.texts == nil || c.batchUnread }

// LacksColocation reports whether data has a colocation-config that c does not
// have, because it has a fault and no former content was known. Then c does not
// say whether colocation is meant to be enabled.
func (c Cluster) LacksColocation(data map[string]string) bool {
	_, given := data[keyColocation]
	_, read := c.texts[keyColocation]
	return given && !read
}

// Notices returns a notice for each unknown key, with the key that was probably
// meant. A notice is not a fault: all other keys are valid.
func (c Cluster) Notices() []string { return c.notices }

// layers is the content of one key of the ConfigMap: settings for all nodes,
// and entries that change these settings for some nodes.
type layers[T any] struct {
	all  T
	some []layer[T]
}

// A layer is an entry of nodeStrategies or nodeConfigs.
type layer[T any] struct {
	// path is the path of the entry, such as "colocation-config.nodeConfigs[0]".
	path string
	entry
	own T
}

// inherit returns the settings of an entry, with those of all nodes for what it does not set. An
// entry of host-application-config replaces the whole list, as in Koordinator. So it can say that
// some nodes have no such programs.
func inherit[T any](own, all T) T {
	if _, whole := any(own).(HostApplications); !whole {
		fill(reflect.ValueOf(&own).Elem(), reflect.ValueOf(all))
	}
	return own
}

// settingsFor returns the settings of a node with these labels. It also returns
// the path of the first entry that selects the node, or "" if none does.
func (l layers[T]) settingsFor(labels map[string]string) (T, string) {
	for _, e := range l.some {
		if e.Selector != nil && e.Selector.Selects(labels) {
			return inherit(e.own, l.all), e.path
		}
	}
	return l.all, ""
}
