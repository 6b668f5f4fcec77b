// Package cluster runs the colocation experiment on a node of a Kubernetes
// cluster that has Tenon. The service and the batch work are pods. The lab
// sends the load, and reads counters from inside the pods.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/colocation/run"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

// Kubernetes names the cluster and the node on which the colocation experiment
// runs. The zero value of a field selects its default, which the field's
// comment names.
type Kubernetes struct {
	kubectl.Target
	Node      string // tested node (default: the only node with a report of tenond)
	ConfigMap string // ConfigMap of Tenon as NAMESPACE/NAME (default: tenon-system/slo-controller-config)
	NGINX     string // images (default: those of the published experiment)
	FFmpeg    string
	Input     string // path of the film in the image of ffmpeg
}

// clusterPort is the port of nginx on a tested node. The published experiment
// has the same port.
const clusterPort = 8000

// Modes lists every mode of the colocation experiment on a cluster.
var Modes = slices.DeleteFunc(slices.Clone(run.AllModes), func(m report.Mode) bool { return !m.Spec().Cluster })

func (k Kubernetes) orDefaults(fault func(format string, args ...any)) Kubernetes {
	k.Target = k.Target.OrDefaults(fault)
	for _, f := range []struct {
		to    *string
		value string
	}{
		{&k.ConfigMap, "tenon-system/slo-controller-config"},
		{&k.NGINX, "koordinatorsh/nginx:v1.18-koord-exmaple"}, //nolint:misspell // the image really has this name
		{&k.FFmpeg, "registry.cn-zhangjiakou.aliyuncs.com/acs/ffmpeg-4-4-1-for-slo-test:v0.1"},
		{&k.Input, "/apps/ffmpeg/input/HD2-h264.ts"},
	} {
		if *f.to == "" {
			*f.to = f.value
		}
	}
	if namespace, name, ok := strings.Cut(k.ConfigMap, "/"); !ok || namespace == "" || name == "" {
		fault("--config-map %q: want NAMESPACE/NAME", k.ConfigMap)
	}
	return k
}

// An environment is the colocation experiment on a node of a cluster,
// after its set-up. Close restores the cluster.
type environment struct {
	run.Config
	*testbed.Site
	cluster Kubernetes
	kubectl kubectl.Client
	space   *kubectl.Space // the namespace of the pods
	node    testedNode

	processes, threads int
	load               harness.LoadSpec
	record             colocation.Experiment
	batch              unit.MilliCPU
	pacer              run.Pacer
	versions           map[string]string
}

// A testedNode is the description of the tested node, from the API server.
type testedNode struct {
	name, address string
	machine       report.Machine
	here          bool // the lab itself runs on this node
}

// Run runs the colocation experiment on a node of a cluster that has Tenon.
// nginx and ffmpeg run as pods. The lab itself only sends the load, and changes
// Tenon's strategies for that node. When Run returns, even with an error, it has
// removed the pods and strategies of the experiment. If it made the namespace,
// it has removed that, too. The Outcome and the error have the same meaning as
// those of run.Run.
func Run(ctx context.Context, c run.Config, k Kubernetes) (harness.Outcome, error) {
	b, err := setCluster(ctx, c, k)
	if err != nil {
		return harness.Outcome{}, testbed.InterruptError(ctx, err)
	}
	s := run.CommonSeries(b.Config, b.Site, &b.record)
	s.First, s.Calibrate, s.Run = b.Duration+b.Warmup()+12*time.Second, b.calibrate, b.run
	return s.Conduct(ctx)
}

// setCluster makes an environment on a cluster. If the configuration has
// several faults, the error names all of them.
func setCluster(ctx context.Context, c run.Config, k Kubernetes) (_ *environment, err error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	k.Input = cmp.Or(k.Input, c.Input)
	k, c.Input = k.orDefaults(fault), ""
	if len(c.Modes) == 0 {
		c.Modes = Modes
	}
	c.Port = cmp.Or(c.Port, clusterPort)
	if c.Client == harness.ClientWrk {
		fault("--client %s: on a cluster only the lab's own client can be used, because it measures from the time at which a request is due", harness.ClientWrk)
	}
	if !c.CPUs.Empty() {
		fault("--cpus %v: on a cluster the kubelet decides which CPUs pods may use: see reservedSystemCPUs and strict-cpu-reservation of its configuration", c.CPUs)
	}
	c, err = c.WithDefaults()
	if err = testbed.RefuseFlags(append(faults, err)...); err != nil {
		return nil, err
	}
	b := &environment{Config: c, cluster: k, versions: map[string]string{}}
	if b.kubectl, err = kubectl.Find(k.Context, k.Namespace); err != nil {
		return nil, err
	}
	if b.Site, err = testbed.Away(c.Setting); err != nil {
		return nil, err
	}
	b.space = b.newSpace()
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := b.findNode(ctx); err != nil {
		return nil, err
	}
	return b, b.settleIn(ctx)
}

// findNode chooses the node to test and reads its description.
func (b *environment) findNode(ctx context.Context) error {
	b.Status.Now("looking at the cluster")
	name := b.cluster.Node
	if name == "" {
		reports, err := nodes.Reports(ctx, b.kubectl)
		if err != nil {
			return fmt.Errorf("find a node with Tenon: %w", err)
		}
		if len(reports) != 1 {
			return fmt.Errorf("%d nodes have Tenon: choose one with --node", len(reports))
		}
		name = reports[0].Metadata.Name
	}
	n, err := nodes.Named(ctx, b.kubectl, name)
	if err != nil {
		return err
	}
	if n.Address == "" {
		return fmt.Errorf("node %s has no internal address", name)
	}
	b.node = testedNode{name: name, here: n.Here, machine: n.Machine(b.FS), address: net.JoinHostPort(n.Address, strconv.Itoa(b.Port))}
	b.versions["kubelet"], b.versions["container runtime"] = n.Kubelet, n.Runtime
	r, err := nodes.ReportOf(ctx, b.kubectl, name)
	if err != nil {
		return fmt.Errorf("node %s has no report of tenond: %w", name, err)
	}
	b.versions["tenond"] = r.Status.Agent
	b.node.machine.Mechanisms = []string{r.Status.Isolation, fmt.Sprintf("CPU suppress at %d %% (%s)", run.Watermark, report.Tenon65)}
	return nil
}

// newSpace returns the namespace of the experiment. Its pods and its ConfigMap
// carry the label by which they are removed, because another user may have
// objects with the same names.
func (b *environment) newSpace() *kubectl.Space {
	return &kubectl.Space{Client: b.kubectl, Target: b.cluster.Target, Experiment: "colocation", Objects: "pods,configmaps", Tell: b.Status.Now}
}

// settleIn prepares the node for the experiment. It first removes what an
// earlier experiment left when it was killed. If another lab runs in the
// namespace, settleIn changes nothing and returns an error.
func (b *environment) settleIn(ctx context.Context) error {
	b.Undo = append(b.Undo, b.space.Leave)
	if err := b.space.Enter(ctx); err != nil {
		return err
	}
	if err := b.checkNames(ctx); err != nil {
		return err
	}
	b.Undo = append(b.Undo, func() error {
		// The clean-up must finish even if the experiment was interrupted.
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		_, labelErr := b.kubectl.Do(ctx, "", "label", "node", b.node.name, strategyLabel+"-")
		return errors.Join(b.apply(ctx, nil), labelErr)
	})
	_, err := b.kubectl.Do(ctx, "", "label", "node", b.node.name, "--overwrite", strategyLabel+"="+strategyName)
	return err
}

// checkNames returns an error if another user's objects have the names of the
// objects of the experiment, which would replace them. At this time, the
// experiment has no objects of its own.
func (b *environment) checkNames(ctx context.Context) error {
	out, err := b.kubectl.Do(ctx, "", "get", "pod/"+nginxPod, "pod/"+batchPod, "configmap/"+nginxConf, "--ignore-not-found", "-o", "name")
	if err != nil {
		return err
	}
	if has := strings.Fields(string(out)); len(has) > 0 {
		return fmt.Errorf("namespace %s has %s, not of this lab: choose another namespace with --namespace, or delete them",
			b.cluster.Namespace, strings.Join(has, ", "))
	}
	return nil
}

// clear removes the pods of the experiment, and waits until they have ended.
func (b *environment) clear(ctx context.Context) error {
	return b.space.Remove(ctx, b.space.All(), "background")
}

func (b *environment) experiment(s run.SoloResult, calibration, caveats []string) colocation.Experiment {
	if b.node.here {
		caveats = append(caveats, "the client runs on the tested machine, on CPUs that the node's pods may not use: no network card, no network")
	}
	caveats = append(caveats,
		"batch-cpu was offered without regard to use (cpuReclaimThresholdPercent 1000): means of isolation are compared, not amounts",
		fmt.Sprintf("counters are read from inside the pods every %v, which takes a CPU of the service a millisecond or two each time, alike in all modes", askPeriod(b.Duration)))
	h := b.Header(colocation.Kind, b.Modes, b.Blocks)
	h.Machine, h.Caveats, h.Versions = b.node.machine, caveats, b.versions
	return colocation.Experiment{Experiment: report.Experiment{
		Header: h, Looks: report.LooksOf(b.Blocks), Duration: b.Duration, Margin: b.Margin, LabCPUs: b.Place.Lab, Client: b.Client,
		OfferedRate: b.load.Rate, LoadPercent: b.LoadPercent,
		BEProcesses: b.processes, BEThreads: b.threads, Input: b.cluster.Input,
		SoloFramesPerSecond: s.Frames, SoloCPU: s.CPUs, Calibration: calibration,
	}, Kubernetes: &colocation.KubernetesSetup{Node: b.node.name, Images: map[string]string{"nginx": b.cluster.NGINX, "ffmpeg": b.cluster.FFmpeg}}}
}

// calibrate measures the rate of the batch work alone, and chooses the rate at
// which requests are sent.
func (b *environment) calibrate(ctx context.Context, caveats []string) (experiment report.Headed, lines []string, err error) {
	b.load = harness.LoadSpec{URL: b.url(), Duration: b.Duration, Warmup: b.Warmup(), Seed: b.Seed, Connections: b.connections()}
	s, lines, more, err := b.calibrateAll(ctx)
	if err != nil {
		return nil, nil, err
	}
	b.record = b.experiment(s, lines, append(caveats, more...))
	return &b.record, lines, nil
}

func (b *environment) calibrateAll(ctx context.Context) (s run.SoloResult, lines, caveats []string, err error) {
	b.Status.Now("calibrating: the service")
	// The first set-up finds out which CPUs the pod may use. If there are
	// several, the second one starts nginx with as many workers.
	st, err := b.setUp(ctx, report.ModeSpec{}, 0)
	if err == nil && b.Place.Tested.Len() > 1 {
		if err = st.close(ctx, nil); err == nil {
			st, err = b.setUp(ctx, report.ModeSpec{}, 0)
		}
	}
	if err != nil {
		return s, nil, nil, err
	}
	defer func() { err = st.close(ctx, err) }()
	b.processes, b.threads = run.Batch(b.Place.Tested.Len())
	if b.BEProcesses > 0 {
		b.processes = b.BEProcesses
	}
	if b.BEThreads > 0 {
		b.threads = b.BEThreads
	}
	tested := float64(b.Place.Tested.Len())
	length := min(max(b.Duration/4, 2*longestAskPeriod), 8*time.Second)
	var ls float64
	rate, limited, lines, err := harness.FindRate(b.LoadPercent/100*tested, 3000*tested, length, func(rate float64) (harness.Trial, error) {
		m, err := st.measure(ctx, b.load.Trial(rate, length))
		if err != nil {
			return harness.Trial{}, err
		}
		ls = m.Used.LS
		return harness.TrialOf(m.Client, ls), nil
	})
	if err != nil {
		return s, nil, nil, err
	}
	b.load.Rate = rate
	lines = append(lines, fmt.Sprintf("offered in every mode: %g requests/s, for %g %% of the tested CPUs", rate, b.LoadPercent))
	if limited {
		caveats = append(caveats, fmt.Sprintf("the client's CPUs %v cannot offer %g %% load: %g requests/s is what they can", b.Place.Client, b.LoadPercent, rate))
	}
	some := func(has func(report.ModeSpec) bool) bool {
		return slices.ContainsFunc(b.Modes, func(m report.Mode) bool { return has(m.Spec()) })
	}
	if some(report.ModeSpec.Isolates) {
		if err := b.awaitBatch(ctx); err != nil {
			return s, nil, nil, err
		}
	}
	if !some(func(t report.ModeSpec) bool { return t.Batch }) {
		return s, lines, caveats, nil
	}
	b.Status.Now("calibrating: ffmpeg alone")
	if err := st.startBeside(ctx, report.ModeSpec{Batch: true}, 0); err != nil {
		return s, nil, nil, err
	}
	m, err := harness.WatchAlone(ctx, st.sampler, 0, min(max(b.Duration, 3*longestAskPeriod), 10*time.Second))
	if err != nil {
		return s, nil, nil, err
	}
	if err := st.sampler.exitError(); err != nil {
		return s, nil, nil, err
	}
	frames, media := st.sampler.encoded(m.From, m.To)
	if !(frames > 0 && media > 0) {
		return s, nil, nil, fmt.Errorf("ffmpeg alone encoded nothing in %v", m.To.Sub(m.From))
	}
	s = run.SoloResult{Frames: frames / m.Used.Wall, CPUs: m.Used.BE, PerMedia: m.Used.Count[harness.BEUsage] / media.Seconds()}
	lines = append(lines, fmt.Sprintf("ffmpeg beside an idle nginx (%d processes of %d threads): %.1f frames/s on %.2f CPUs, %.2f CPU seconds per second of film",
		b.processes, b.threads, s.Frames, s.CPUs, s.PerMedia))
	b.pacer = run.Pacer{Tested: b.Place.Tested.Len(), Processes: b.processes, PerMedia: s.PerMedia, LSCPUs: ls}
	return s, lines, caveats, nil
}

// connections returns the number of connections that the client opens.
func (b *environment) connections() int {
	if b.Connections > 0 {
		return b.Connections
	}
	return 256
}
