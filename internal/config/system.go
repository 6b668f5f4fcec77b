package config

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// System is system-config: kernel settings of a node. This version only reads
// and checks them.
type System struct {
	MinFreeKbytesFactor       node.Maybe[int64]           `json:"minFreeKbytesFactor,omitzero" range:"1.." later:""`
	WatermarkScaleFactor      node.Maybe[int64]           `json:"watermarkScaleFactor,omitzero" range:"1..400" later:""`
	MemcgReapBackGround       node.Maybe[int64]           `json:"memcgReapBackGround,omitzero" range:"0..1" later:"0"`
	SchedGroupIdentityEnabled node.Maybe[int64]           `json:"schedGroupIdentityEnabled,omitzero" range:"0..1" later:"0"`
	SchedIdleSaverWmark       node.Maybe[int64]           `json:"schedIdleSaverWmark,omitzero" range:"0.." later:""`
	SchedFeatures             map[string]node.Maybe[bool] `json:"schedFeatures,omitempty" later:""`
	PageCacheLimitEnabled     node.Maybe[int64]           `json:"pageCacheLimitEnabled,omitzero" range:"0..1" later:"0"`
	TotalNetworkBandwidth     node.Maybe[unit.Bytes]      `json:"totalNetworkBandwidth,omitzero" later:""`
}

// Normalization is cpu-normalization-config: how fast a CPU is, relative to other models.
type Normalization struct {
	Enable       node.Maybe[bool]      `json:"enable,omitzero" later:"false"`
	DefaultRatio node.Maybe[float64]   `json:"defaultRatio,omitzero" range:"1..5"`
	RatioModel   map[string]ModelRatio `json:"ratioModel,omitempty"`
}

// ModelRatio is the speed of one CPU model in each of its modes.
type ModelRatio struct {
	Base             node.Maybe[float64] `json:"baseRatio,omitzero" range:"1..5"`
	HyperThread      node.Maybe[float64] `json:"hyperThreadEnabledRatio,omitzero" range:"1..5"`
	Turbo            node.Maybe[float64] `json:"turboEnabledRatio,omitzero" range:"1..5"`
	HyperThreadTurbo node.Maybe[float64] `json:"hyperThreadTurboEnabledRatio,omitzero" range:"1..5"`
}

// Amplification is resource-amplification-config. The scheduler sees the
// resources of a node multiplied by its factors.
type Amplification struct {
	Enable node.Maybe[bool]               `json:"enable,omitzero" later:"false"`
	Ratio  map[string]node.Maybe[float64] `json:"resourceAmplificationRatio,omitempty" range:"1.."`
}

// HostApplications is host-application-config: work outside Kubernetes that is
// treated like a pod.
type HostApplications struct {
	Applications []HostApplication `json:"applications,omitempty"`
}

// HostApplication is a program of the node that runs in its own cgroup.
type HostApplication struct {
	Name     node.Maybe[string] `json:"name,omitzero"`
	Priority node.Maybe[string] `json:"priority,omitzero" oneof:"koord-prod koord-mid koord-batch koord-free"`
	Class    node.Maybe[string] `json:"qos,omitzero" oneof:"LSE LSR LS BE SYSTEM"`
	Cgroup   HostCgroup         `json:"cgroupPath,omitzero"`
	// Strategy has no fields in Koordinator.
	Strategy map[string]any `json:"strategy,omitempty"`
}

// HostCgroup is the place of a program's cgroup in the tree: base, parentDir and relativePath,
// joined. The kubelet creates the bases that begin with Kubepods.
type HostCgroup struct {
	Base         node.Maybe[string] `json:"base,omitzero" oneof:"CgroupRoot Kubepods KubepodsBurstable KubepodsBesteffort"`
	ParentDir    node.Maybe[string] `json:"parentDir,omitzero"`
	RelativePath node.Maybe[string] `json:"relativePath,omitzero"`
}
