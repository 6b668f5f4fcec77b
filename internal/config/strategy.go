package config

import (
	"tenon.sh/tenon/internal/model/node"
)

// Strategies contains the configured strategies of one node. The keys, their meanings and
// their ranges are those of the ConfigMap of Koordinator and ACK (slo-controller-config,
// ack-slo-config), so that the file and the ConfigMap share this struct. An unset key is
// absent; default.go has its default. docs/configuration.md describes each key.
type Strategies struct {
	Threshold  Threshold  `json:"resource-threshold-config,omitzero" section:"nodeStrategies"`
	QOS        QOS        `json:"resource-qos-config,omitzero" section:"nodeStrategies"`
	Burst      Burst      `json:"cpu-burst-config,omitzero" section:"nodeStrategies"`
	Colocation Colocation `json:"colocation-config,omitzero" section:"nodeConfigs"`
}

// QOS is resource-qos-config, which isolates each class from the others.
type QOS struct {
	Policies    Policies `json:"policies,omitzero"`
	LSRClass    Class    `json:"lsrClass,omitzero"`
	LSClass     Class    `json:"lsClass,omitzero"`
	BEClass     Class    `json:"beClass,omitzero"`
	SystemClass Class    `json:"systemClass,omitzero"`
	// CgroupRoot contains the settings that exist once per node, such as those of
	// block devices.
	CgroupRoot Class `json:"cgroupRoot,omitzero" later:""`
}

// classOf is one part of QOS, with its key and its classes.
type classOf struct {
	key string
	Class
	names []node.Class
}

// classes returns the parts of q, each with its classes.
func (q QOS) classes() []classOf {
	return []classOf{
		{"lsrClass", q.LSRClass, []node.Class{node.LSE, node.LSR}},
		{"lsClass", q.LSClass, []node.Class{node.LS}},
		{"beClass", q.BEClass, []node.Class{node.BE}},
		{"systemClass", q.SystemClass, []node.Class{node.System}},
	}
}

// pointers returns pointers to the parts of q, in the order of classes.
func (q *QOS) pointers() []*Class {
	return []*Class{&q.LSRClass, &q.LSClass, &q.BEClass, &q.SystemClass}
}

// Class is the isolation of the workloads of one class. Each part has a key
// Enable, and has an effect only if this key is true.
type Class struct {
	CPU     CPUQOS     `json:"cpuQOS,omitzero"`
	Memory  MemoryQOS  `json:"memoryQOS,omitzero"`
	Resctrl ResctrlQOS `json:"resctrlQOS,omitzero"`
	BlkIO   BlkIOQOS   `json:"blkioQOS,omitzero"`
	Network NetworkQOS `json:"networkQOS,omitzero"`
}

// NetworkQOS configures the part of the network bandwidth that a class may use.
type NetworkQOS struct {
	Enable         node.Maybe[bool]      `json:"enable,omitzero" later:"false"`
	IngressRequest node.Maybe[Bandwidth] `json:"ingressRequest,omitzero" later:""`
	IngressLimit   node.Maybe[Bandwidth] `json:"ingressLimit,omitzero" later:""`
	EgressRequest  node.Maybe[Bandwidth] `json:"egressRequest,omitzero" later:""`
	EgressLimit    node.Maybe[Bandwidth] `json:"egressLimit,omitzero" later:""`
}
