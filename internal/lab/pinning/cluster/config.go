// Package cluster runs the experiment on CPU pinning with pods of a Kubernetes
// cluster. It uses the published manifests of the job and of the web servers.
// The modes differ in annotations, labels and limits.
package cluster

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/pinning/run"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// A Config configures the experiment. If a field is zero, it has the default
// that its comment names. A field of the embedded Config has no effect if it is
// about the CPUs of this machine or about the rounds of the job.
type Config struct {
	run.Config        // Limit: CPUs of the job and of each server (default: 4, as published, or fewer where 4 do not fit)
	Context    string // of kubectl (default: the current one)
	Node       string // the tested node (default: the only one that takes ordinary pods)
	Namespace  string // of the pods; made, and removed at the end, if it does not exist (default: tenon-lab)
	NGINX      string // image of the servers (default: as published)
	Pi         string // image of the job (default: as published)
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

// withDefaults fills in defaults and returns all faults at once.
func (c Config) withDefaults() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !c.CPUs.Empty() {
		fault("--cpus %v: on a cluster the node decides which CPUs pods may use", c.CPUs)
	}
	if c.Rounds != 0 {
		fault("--rounds %d: the published program of the job computes its digits once", c.Rounds)
	}
	if c.NodePort < 0 || c.NodePort > 65535 {
		fault("--node-port %d: want 1 to 65535; most clusters accept 30000 to 32767", c.NodePort)
	}
	c.NodePort = cmp.Or(c.NodePort, publishedPort)
	c.Duration, c.MaxTime = cmp.Or(c.Duration, 10*time.Second), cmp.Or(c.MaxTime, time.Hour)
	c.Namespace, c.NGINX, c.Pi = cmp.Or(c.Namespace, "tenon-lab"), cmp.Or(c.NGINX, nginxImage), cmp.Or(c.Pi, piImage)
	if !namespaceName.MatchString(c.Namespace) {
		fault("--namespace %q: want 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", c.Namespace)
	}
	var err error
	c.Config, err = c.Config.OrDefaults()
	c.Rounds = 1
	return c, testbed.RefuseFlags(append(faults, err)...)
}

// namespaceName matches the names of namespaces (RFC 1123, as Kubernetes demands).
var namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// A cell is one part in one mode.
type cell struct {
	part string
	mode pinning.Mode
}

func (c cell) String() string { return c.part + " " + string(c.mode) }

// choose returns the cells that the node can run. refused has the reasons for
// the other cells.
func (b *bench) choose() (cells []cell, refused []string) {
	for _, m := range b.Modes {
		if why := unsuited[m]; why != "" {
			refused = append(refused, fmt.Sprintf("%s: %s", m, why))
		}
	}
	for _, p := range b.Parts {
		for _, m := range b.Modes {
			if unsuited[m] != "" {
				continue
			}
			c := cell{p, m}
			if why := b.refuse(c); why != "" {
				refused = append(refused, fmt.Sprintf("%v: %s", c, why))
				continue
			}
			cells = append(cells, c)
		}
	}
	return cells, refused
}

// refuse returns the reason why the node cannot run a cell, or "".
func (b *bench) refuse(c cell) string {
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
		return fmt.Sprintf("%s with %s each of their own: node %s gives away %d of its %d CPUs, and keeps the others shared", textlayout.Plural(pods, "pod", "pods"),
			textlayout.Plural(limit, "CPU", "CPUs"), b.node.Name, max(own, 0), b.node.CPUs)
	}
	return ""
}

// pieces returns the number of pods of a part, and the CPU limit of each.
func (b *bench) pieces(part string) (pods, limit int) {
	if part == pinning.NGINX {
		return replicas, b.serverLimit
	}
	return 1, b.limit
}
