package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/proc"
	"tenon.sh/tenon/internal/task"
	"tenon.sh/tenon/internal/unit"
)

// A Kubernetes value says on which node of which cluster the colocation
// experiment runs. The zero value of a field stands for the default named
// beside it.
type Kubernetes struct {
	Context   string // of kubectl; the current one
	Node      string // the tested one; the only one with a report of tenond
	Namespace string // of the experiment's pods, made if it is not there; tenon-lab
	ConfigMap string // Tenon's, as NAMESPACE/NAME; tenon-system/slo-controller-config
	NGINX     string // images; those of the published experiment
	FFmpeg    string
	Input     string // film in the image of ffmpeg
}

// clusterPort is where nginx listens on a tested node, as in the published experiment.
const clusterPort = 8000

// KubernetesModes lists every mode of the colocation experiment on a cluster.
var KubernetesModes = []report.Mode{
	report.Exclusive, report.ExclusiveAA, report.ExclusiveWarm, report.Default, report.Default65, report.Tenon, report.Tenon65,
}

func (k Kubernetes) orDefaults(fault func(format string, args ...any)) Kubernetes {
	for _, f := range []struct {
		to    *string
		value string
	}{
		{&k.Namespace, "tenon-lab"},
		{&k.ConfigMap, "tenon-system/slo-controller-config"},
		{&k.NGINX, "koordinatorsh/nginx:v1.18-koord-exmaple"}, //nolint:misspell // it is called so
		{&k.FFmpeg, "registry.cn-zhangjiakou.aliyuncs.com/acs/ffmpeg-4-4-1-for-slo-test:v0.1"},
		{&k.Input, "/apps/ffmpeg/input/HD2-h264.ts"},
	} {
		if *f.to == "" {
			*f.to = f.value
		}
	}
	if namespace, name, ok := strings.Cut(k.ConfigMap, "/"); !ok || namespace == "" || name == "" {
		fault("--cluster-config %q: want NAMESPACE/NAME", k.ConfigMap)
	}
	return k
}

// A clusterBench is the colocation experiment set up on a node of a cluster.
// Close leaves the cluster as it was.
type clusterBench struct {
	Config
	*site
	cluster Kubernetes
	kubectl kubectl
	node    testedNode

	processes, threads int
	rate               float64 // offered, requests per second
	batch              unit.MilliCPU
	pacer              pacer
	versions           map[string]string
}

// A testedNode is what the cluster says of the node.
type testedNode struct {
	name, address string
	machine       report.Machine
	here          bool // it is the machine that the lab runs on
}

// ColocateKubernetes runs the colocation experiment on a node of a cluster
// that has Tenon: nginx and ffmpeg are pods of it, the lab only sends the load
// and switches Tenon's strategies for that node. When it returns, neither pods
// nor strategies of the experiment are left, whatever the error. Outcome and
// error are as those of Colocate.
func ColocateKubernetes(ctx context.Context, c Config, k Kubernetes) (Outcome, error) {
	b, err := setCluster(ctx, c, k)
	if err != nil {
		return Outcome{}, interrupted(ctx, err)
	}
	return conduct(ctx, b)
}

// setCluster makes a bench. Every fault that can be seen beforehand is an
// error here, before anything runs.
func setCluster(ctx context.Context, c Config, k Kubernetes) (_ *clusterBench, err error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if k.Input == "" {
		k.Input = c.Input
	}
	k, c.Input = k.orDefaults(fault), ""
	if len(c.Modes) == 0 {
		c.Modes = KubernetesModes
	}
	if c.Port == 0 {
		c.Port = clusterPort
	}
	if c.Client == ClientWrk {
		fault("--client %s: on a cluster the lab has its own client only: it counts from when a request was due", ClientWrk)
	}
	if !c.CPUs.Empty() {
		fault("--cpus %v: on a cluster the kubelet decides which CPUs pods may use: see reservedSystemCPUs and strict-cpu-reservation of its configuration", c.CPUs)
	}
	c, err = c.orDefaults()
	if err = errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	b := &clusterBench{Config: c, cluster: k, versions: map[string]string{}}
	if b.kubectl.path, err = kubectlProgram.find(); err != nil {
		return nil, err
	}
	if k.Context != "" {
		b.kubectl.args = append(b.kubectl.args, "--context", k.Context)
	}
	b.kubectl.args = append(b.kubectl.args, "--namespace", k.Namespace)
	if b.site, err = away(c.Setting); err != nil {
		return nil, err
	}
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

// away is a site without anything but a client: what is tested is elsewhere.
func away(c Setting) (_ *site, err error) {
	s := &site{setting: c, status: &status{w: c.Notices, terminal: c.Terminal}, fs: proc.Default()}
	if len(s.setting.Self) == 0 {
		if s.setting.Self, err = self(); err != nil {
			return nil, err
		}
	}
	allowed, err := task.Affinity(0)
	if err != nil {
		return nil, err
	}
	if missing := c.ClientCPUs.Minus(allowed); !missing.Empty() {
		return nil, fmt.Errorf("--client-cpus %v: CPU %v is not online or not allowed here; usable are %v", c.ClientCPUs, missing, allowed)
	}
	if s.place.Client = c.ClientCPUs; c.ClientCPUs.Empty() {
		s.place.Client = allowed
	}
	return s, s.stepAside()
}

// findNode chooses the tested node and asks the cluster about it.
func (b *clusterBench) findNode(ctx context.Context) error {
	b.status.Now("looking at the cluster")
	name := b.cluster.Node
	if name == "" {
		var reports struct{ Items []nodeReport }
		if err := b.kubectl.get(ctx, &reports, "nodereports.tenon.sh"); err != nil {
			return fmt.Errorf("find a node with Tenon: %w", err)
		}
		if len(reports.Items) != 1 {
			return fmt.Errorf("%d nodes have Tenon: choose one with --node", len(reports.Items))
		}
		name = reports.Items[0].Metadata.Name
	}
	var n struct {
		Status struct {
			Addresses []struct{ Type, Address string }
			NodeInfo  struct {
				BootID, KernelVersion, OSImage, ContainerRuntimeVersion, KubeletVersion string
			}
			Capacity map[string]string
		}
	}
	if err := b.kubectl.get(ctx, &n, "node", name); err != nil {
		return err
	}
	info := n.Status.NodeInfo
	cpus, _ := strconv.Atoi(n.Status.Capacity["cpu"])
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	b.node = testedNode{
		name: name, here: strings.TrimSpace(string(boot)) == info.BootID,
		machine: report.Machine{Kernel: info.KernelVersion, OS: info.OSImage, CPUs: cpus},
	}
	for _, a := range n.Status.Addresses {
		if a.Type == "InternalIP" && b.node.address == "" {
			b.node.address = net.JoinHostPort(a.Address, strconv.Itoa(b.Port))
		}
	}
	if b.node.address == "" {
		return fmt.Errorf("node %s has no internal address", name)
	}
	if b.node.here {
		b.node.machine = thisMachine(b.fs)
		b.node.machine.CPUs = cpus
	}
	b.versions["kubelet"], b.versions["container runtime"] = info.KubeletVersion, info.ContainerRuntimeVersion
	r, err := b.nodeReport(ctx)
	if err != nil {
		return fmt.Errorf("node %s has no report of tenond: %w", name, err)
	}
	b.versions["tenond"] = r.Status.Agent
	b.node.machine.Mechanisms = []string{r.Status.Isolation, fmt.Sprintf("CPU suppress at %d %% (%s)", watermark, report.Tenon65)}
	return nil
}

// settleIn takes the node for the experiment, and undoes what an earlier one
// that was killed left.
func (b *clusterBench) settleIn(ctx context.Context) error {
	if _, err := b.kubectl.do(ctx, manifest([]object{{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": b.cluster.Namespace}}}), "apply", "-f", "-"); err != nil {
		return err
	}
	b.undo = append(b.undo, func() error {
		// The experiment may have been interrupted: this must not be.
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		_, labelErr := b.kubectl.do(ctx, "", "label", "node", b.node.name, strategyLabel+"-")
		return errors.Join(b.clear(ctx), b.apply(ctx, nil), labelErr)
	})
	if err := b.clear(ctx); err != nil {
		return err
	}
	_, err := b.kubectl.do(ctx, "", "label", "node", b.node.name, "--overwrite", strategyLabel+"="+strategyName)
	return err
}

// clear removes the pods of the experiment.
func (b *clusterBench) clear(ctx context.Context) error {
	_, err := b.kubectl.do(ctx, "", "delete", "pod/"+nginxPod, "pod/"+batchPod, "configmap/nginx-conf", "--ignore-not-found", "--wait", "--timeout=60s")
	return err
}

// open calibrates and makes the directory of the results.
func (b *clusterBench) open(ctx context.Context) (*series, error) {
	s := &series{
		site: b.site, blocks: b.Blocks, first: b.Duration + b.warmup() + 12*time.Second,
		untilResolved: b.UntilResolved, run: b.run, tell: tell,
	}
	if b.MaxTime > 0 {
		s.end = time.Now().Add(b.MaxTime)
	}
	if err := b.Setting.claim(); err != nil {
		return s, err
	}
	solo, lines, caveats, err := b.calibrate(ctx)
	if err != nil {
		os.Remove(b.Out) // if it is empty
		return s, err
	}
	for _, l := range lines {
		b.status.Keep("%s", l)
	}
	s.exp = b.experiment(solo, lines, caveats)
	return s, report.Create(b.Out, s.exp)
}

func (b *clusterBench) experiment(s solo, calibration, caveats []string) report.Experiment {
	if b.node.here {
		caveats = append(caveats, "the client runs on the tested machine, on CPUs that the node's pods may not use: no network card, no network")
	}
	caveats = append(caveats,
		"batch-cpu was offered without regard to use (cpuReclaimThresholdPercent 1000): means of isolation are compared, not amounts",
		fmt.Sprintf("counters are read from inside the pods every %v, which takes a CPU of the service a millisecond or two each time, alike in all modes", askPeriod))
	return report.Experiment{
		Schema: report.Schema, Kind: report.KindColocation, Started: time.Now(), Command: b.Command, Version: b.Version,
		Modes: b.Modes, Blocks: b.Blocks, Duration: b.Duration, Seed: b.Seed, Margin: b.Margin,
		TestedCPUs: b.place.Tested, ClientCPUs: b.place.Client, Client: b.Client,
		OfferedRate: b.rate, LoadPercent: b.LoadPercent,
		BEProcesses: b.processes, BEThreads: b.threads, Input: b.cluster.Input,
		SoloFramesPerSecond: s.frames, SoloCPU: s.cpus,
		Machine: b.node.machine, Calibration: calibration, Caveats: caveats, Versions: b.versions,
		Kubernetes: &report.KubernetesSetup{Node: b.node.name, Images: map[string]string{"nginx": b.cluster.NGINX, "ffmpeg": b.cluster.FFmpeg}},
	}
}

// calibrate finds the batch work's solo rate and the offered rate.
func (b *clusterBench) calibrate(ctx context.Context) (s solo, lines, caveats []string, err error) {
	b.status.Now("calibrating: the service")
	// How large the service must be is known when its pod says what it may use.
	st, err := b.stage(ctx, traits{}, 0)
	if err == nil && b.place.Tested.Len() > 1 {
		if err = st.close(ctx, nil); err == nil {
			st, err = b.stage(ctx, traits{}, 0)
		}
	}
	if err != nil {
		return s, nil, nil, err
	}
	defer func() { err = st.close(ctx, err) }()
	b.processes, b.threads = Batch(b.place.Tested.Len())
	if b.BEProcesses > 0 {
		b.processes = b.BEProcesses
	}
	if b.BEThreads > 0 {
		b.threads = b.BEThreads
	}
	tested := float64(b.place.Tested.Len())
	length := min(max(b.Duration/4, 4*askPeriod/2), 8*time.Second)
	var ls float64
	rate, limited, lines, err := findRate(b.LoadPercent/100*tested, 3000*tested, func(rate float64) (trial, error) {
		order := b.order(0, length)
		order.Rate, order.Warmup = rate, 300*time.Millisecond
		m, err := st.measure(ctx, order)
		if err != nil {
			return trial{}, err
		}
		ls = m.used.ls
		return trial{answered: m.client.AchievedRate, ls: ls, busy: m.client.BusyRatio}, nil
	})
	if err != nil {
		return s, nil, nil, err
	}
	b.rate = rate
	lines = append(lines, fmt.Sprintf("offered in every mode: %g requests/s, for %g %% of the tested CPUs", rate, b.LoadPercent))
	if limited {
		caveats = append(caveats, fmt.Sprintf("the client's CPUs %v cannot offer %g %% load: %g requests/s is what they can", b.place.Client, b.LoadPercent, rate))
	}
	some := func(has func(traits) bool) bool {
		return slices.ContainsFunc(b.Modes, func(m report.Mode) bool { return has(traitsOf(m)) })
	}
	if some(traits.isolates) {
		if err := b.awaitBatch(ctx); err != nil {
			return s, nil, nil, err
		}
	}
	if !some(func(t traits) bool { return t.batch }) {
		return s, lines, caveats, nil
	}
	b.status.Now("calibrating: ffmpeg alone")
	if err := st.startBeside(ctx, traits{batch: true}, 0); err != nil {
		return s, nil, nil, err
	}
	m, err := watchAlone(ctx, st.sampler, 0, min(max(b.Duration, 3*askPeriod), 10*time.Second))
	if err != nil {
		return s, nil, nil, err
	}
	frames, media := st.sampler.encoded(m.from, m.to)
	if !(frames > 0 && media > 0) {
		return s, nil, nil, fmt.Errorf("ffmpeg alone encoded nothing in %v", m.to.Sub(m.from))
	}
	s = solo{frames: frames / m.used.wall, cpus: m.used.be, perMedia: m.used.count[beUsage] / media.Seconds()}
	lines = append(lines, fmt.Sprintf("ffmpeg beside an idle nginx (%d processes of %d threads): %.1f frames/s on %.2f CPUs, %.2f CPU seconds per second of film",
		b.processes, b.threads, s.frames, s.cpus, s.perMedia))
	b.pacer = pacer{Tested: b.place.Tested.Len(), Processes: b.processes, PerMedia: s.perMedia, LSCPUs: ls}
	return s, lines, caveats, nil
}

// connections is how many the client opens.
func (b *clusterBench) connections() int {
	if b.Connections > 0 {
		return b.Connections
	}
	return 256
}
