package run

import (
	"cmp"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// Pods says where the pods of the experiment run. If a field is zero, it has the
// default that its comment names. The settings that are about the CPUs of this
// machine, or about the rounds of the job, have no effect on pods.
type Pods struct {
	kubectl.Target
	Node  string // the tested node (default: the only one that takes ordinary pods)
	NGINX string // image of the servers (default: as published)
	Pi    string // image of the job (default: as published)
	// NodePort is the port of the Service on the node (default: 32257, as
	// published).
	NodePort int
}

// The published images, and what the published manifests ask for.
const (
	nginxImage      = "docker.io/library/nginx:latest"
	piImage         = "registry.cn-zhangjiakou.aliyuncs.com/xianlu/java-pi"
	publishedPort   = 32257
	publishedLimit  = 4
	publishedMemory = unit.Bytes(8) << 30 // of a server
	replicas        = 2
)

// unsuited says why the other modes need the machine itself.
var unsuited = map[pinning.Mode]string{
	pinning.SharedWarm:  "the lab does not keep the CPUs of a node awake",
	pinning.PinnedWorst: "the scheduler and tenond choose the CPUs of a pod, and never badly on purpose",
}

// orDefaults sets the defaults, and calls fault for each fault in c that is one on
// a cluster.
func (p Pods) orDefaults(c Config, fault func(string, ...any)) Pods {
	if !c.CPUs.Empty() {
		fault("--cpus %v: on a cluster the node decides which CPUs pods may use", c.CPUs)
	}
	if c.Rounds != 0 {
		fault("--rounds %d: the published program of the job computes its digits once", c.Rounds)
	}
	if p.NodePort < 0 || p.NodePort > 65535 {
		fault("--node-port %d: want 1 to 65535; most clusters accept 30000 to 32767", p.NodePort)
	}
	p.NodePort = cmp.Or(p.NodePort, publishedPort)
	p.Target, p.NGINX, p.Pi = p.Target.OrDefaults(fault), cmp.Or(p.NGINX, nginxImage), cmp.Or(p.Pi, piImage)
	return p
}

// refuse returns the reason why the node cannot run a cell, or "".
func (b *pods) refuse(c cell) string {
	pods, limit := b.pieces(c.part)
	need := b.requests(c.part)
	if room := b.node.Places(need); room < pods {
		return fmt.Sprintf("there is room for %d of %d pods with %s and %.1f GiB each: node %s has %g CPUs and %.1f GiB free", max(room, 0), pods, textlayout.Plural(limit, "CPU", "CPUs"),
			float64(need.Memory)/(1<<30), b.node.Name, max(b.node.Free.CPU, 0).Cores(), float64(max(b.node.Free.Memory, 0))/(1<<30))
	}
	if b.node.Policy == "static" && c.part == pinning.NGINX && (c.mode == pinning.Shared || c.mode == pinning.SharedAA) {
		return "the CPU manager policy of the kubelet is static, so the servers would have CPUs of their own"
	}
	if slices.Contains([]pinning.Mode{pinning.Shared, pinning.SharedAA, pinning.SharedFree}, c.mode) {
		return ""
	}
	switch own := b.cpus.open.Minus(b.cpus.owned).Len() - b.cpus.keep; {
	case b.cpus.why != "":
		return b.cpus.why
	case c.mode == pinning.StaticBurst && len(b.cpus.pools) < 2:
		return "the node has one L3 cache and one NUMA node: the pool is all CPUs, as in shared"
	case c.mode != pinning.StaticBurst && pods*limit > own:
		return fmt.Sprintf("%v: node %s keeps the others of its %d CPUs shared", tooFew("own CPUs of "+textlayout.Plural(pods, "pod", "pods"), pods*limit, max(own, 0)), b.node.Name, b.node.CPUs)
	}
	return ""
}

// pieces returns the number of pods of a part, and the CPU limit of each.
func (b *pods) pieces(part string) (pods, limit int) {
	if part == pinning.NGINX {
		return replicas, b.serverLimit
	}
	return 1, b.limit
}
