package run

import (
	"cmp"
	"strings"

	"tenon.sh/tenon/internal/lab/kubectl"
)

// Pods says where the jobs of the experiment run as pods. If a field is zero, it
// has the default that its comment names. The settings that are about the CPUs of
// this machine have no effect on pods. Jobs always run as a wave.
type Pods struct {
	kubectl.Target
	Nodes []string // tested nodes (default: all that take ordinary pods)
	Image string   // of the jobs: it has sh, and ffmpeg unless there is a command (default: that of the published experiment)
}

// image is the image of the published experiment.
const image = "docker.io/jrottenberg/ffmpeg:ubuntu"

// unsuited says why some strategies need the machine itself.
var unsuited = map[Strategy]string{
	PinnedSlices: "no part of Kubernetes gives several pods a set of CPUs in common: cut the node into virtual machines, or use static",
	PinnedBlind:  "no part of Kubernetes draws CPUs at random",
	StaticBurst:  "this lab does not read the caches of nodes, so it cannot tell where it differs from quota: run it on the machine itself",
}

// orDefaults sets the defaults, and calls fault for each fault in c that is one on
// a cluster.
func (p Pods) orDefaults(c Config, fault func(string, ...any)) Pods {
	if c.Fill != "" && c.Fill != Wave {
		fault("--fill %s: on a cluster jobs run as a wave: leave it out", c.Fill)
	}
	if c.Slice != 0 {
		fault("--slice %d: a cluster has no pinned virtual workers", c.Slice)
	}
	if !c.CPUs.Empty() {
		fault("--cpus %v: on a cluster the kubelet decides which CPUs pods may use", c.CPUs)
	}
	if c.Input != "" && !strings.HasPrefix(c.Input, "/") {
		fault("--input %q: want the path of a film in the image, from /", c.Input)
	}
	p.Target, p.Image = p.Target.OrDefaults(fault), cmp.Or(p.Image, image)
	return p
}
