package config

import (
	"maps"
	"reflect"
)

// The keys of Koordinator's ConfigMap slo-controller-config, and of ACK's
// ack-slo-config.
const (
	keyThreshold     = "resource-threshold-config"
	keyQOS           = "resource-qos-config"
	keyBurst         = "cpu-burst-config"
	keyColocation    = "colocation-config"
	keySystem        = "system-config"
	keyHostApps      = "host-application-config"
	keyNormalization = "cpu-normalization-config"
	keyAmplification = "resource-amplification-config"
)

// A Cluster is what the ConfigMap of a cluster asks for: for all its nodes, and
// for some instead. The zero Cluster is that of a ConfigMap that is not there:
// defaults, by which nothing is enabled.
type Cluster struct {
	threshold     layers[Threshold]
	qos           layers[QOS]
	burst         layers[Burst]
	colocation    layers[Colocation]
	system        layers[System]
	hostApps      layers[HostApplications]
	normalization layers[Normalization]
	amplification layers[Amplification]

	texts   map[string]string
	notices []string
}

// Data returns the texts that are in force, by key. Parsed again they give the
// same Cluster, without what was wrong with the ConfigMap.
func (c Cluster) Data() map[string]string { return maps.Clone(c.texts) }

// Notices name the unknown keys, and the key that was most likely meant. They
// are no faults: all other keys hold.
func (c Cluster) Notices() []string { return c.notices }

// layers are what one key of the ConfigMap says: what holds on all nodes, and
// what holds on some instead.
type layers[T any] struct {
	all  T
	some []layer[T]
}

// A layer is an entry of nodeStrategies or nodeConfigs.
type layer[T any] struct {
	// at is where it stands, such as "colocation-config.nodeConfigs[0]".
	at string
	entry
	own T
}

// on returns what holds on a node with these labels, and the entry that makes
// it differ from other nodes: the first that selects the node.
func (l layers[T]) on(labels map[string]string) (T, string) {
	for _, e := range l.some {
		if e.Selector != nil && e.Selector.selects(labels) {
			own := e.own
			fill(reflect.ValueOf(&own).Elem(), reflect.ValueOf(l.all))
			return own, e.at
		}
	}
	return l.all, ""
}
