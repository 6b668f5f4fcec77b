// Package cluster runs the experiment on concurrent jobs on nodes of a
// Kubernetes cluster. The jobs of a cell are Jobs that begin together and have
// the names of the published experiment. Their logs hold their times and
// counters.
package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency/run"
	"tenon.sh/tenon/internal/lab/testbed"
)

// A Config configures the experiment. If a field is zero, it has the default
// that its comment names. Fields of the embedded Config that describe this
// machine have no effect. Jobs always run as a wave.
type Config struct {
	run.Config
	Context   string   // kubectl context (default: the current one)
	Nodes     []string // tested nodes (default: all that take ordinary pods)
	Namespace string   // of the jobs; made, and removed at the end, if it does not exist (default: tenon-lab)
	Image     string   // of the jobs: it has sh, and ffmpeg unless there is a command (default: that of the published experiment)
	// Input is the path of the film in the image. If it is empty, ffmpeg
	// renders a film in each pod before the job begins.
	Input string
}

// image is the image of the published experiment.
const image = "docker.io/jrottenberg/ffmpeg:ubuntu"

// Strategies lists the strategies that make sense on a cluster.
var Strategies = []run.Strategy{run.Quota, run.Unbounded, run.Burst, run.Matched, run.Static, run.Tenon}

// unsuitedReasons says why the other strategies need the machine itself.
var unsuitedReasons = map[run.Strategy]string{
	run.PinnedSlices: "no part of Kubernetes gives several pods a set of CPUs in common: cut the node into virtual machines, or use static",
	run.PinnedBlind:  "no part of Kubernetes draws CPUs at random",
	run.StaticBurst:  "this lab does not read the caches of nodes, so it cannot tell where it differs from quota: run it on the machine itself",
}

// withDefaults fills in defaults and returns all faults at once.
func (c Config) withDefaults() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Fill != "" && c.Fill != run.Wave {
		fault("--fill %s: on a cluster jobs run as a wave: leave it out", c.Fill)
	}
	c.Fill = run.Wave
	if c.Slice != 0 {
		fault("--slice %d: a cluster has no pinned virtual workers", c.Slice)
	}
	if !c.CPUs.Empty() {
		fault("--cpus %v: on a cluster the kubelet decides which CPUs pods may use", c.CPUs)
	}
	c.Work = cmp.Or(c.Work, 5*time.Second)
	if len(c.Argv) > 0 && c.Input != "" {
		fault("--input belongs to the lab's own job, and a command was given")
	}
	if c.Input != "" && !strings.HasPrefix(c.Input, "/") {
		fault("--input %q: want the path of a film in the image, from /", c.Input)
	}
	c.Namespace, c.Image = cmp.Or(c.Namespace, "tenon-lab"), cmp.Or(c.Image, image)
	if strings.Trim(c.Namespace, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		fault("--namespace %q: want the name of a namespace", c.Namespace)
	}
	input := c.Input
	c.Input, c.Config.Input = "", ""
	var err error
	c.Config, err = c.Config.OrDefaults()
	c.Input = input
	if err = testbed.RefuseFlags(append(faults, err)...); err != nil {
		return c, err
	}
	if cells, refused := c.combinations(); len(cells) == 0 && len(refused) > 0 {
		return c, testbed.RefuseFlags(fmt.Errorf("--strategies %s", strings.Join(refused, "; ")))
	}
	return c, nil
}

// combinations returns the cells that a cluster could run. refused has one line
// for each strategy that a cluster cannot run.
func (c Config) combinations() (cells []run.Cell, refused []string) {
	for _, cell := range c.Combinations() {
		if slices.Contains(Strategies, cell.Strategy) {
			cells = append(cells, cell)
			continue
		}
		if why := fmt.Sprintf("%s: %s", cell.Strategy, unsuitedReasons[cell.Strategy]); !slices.Contains(refused, why) {
			refused = append(refused, why)
		}
	}
	return cells, refused
}
