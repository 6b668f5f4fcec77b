package run

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
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// Pods says where the experiment runs as pods. The zero value of a field selects its
// default, which the field's comment names.
type Pods struct {
	kubectl.Target
	Node string // tested node (default: the only node with a report of tenond)
	// Batch is the number of batch pods, which the scheduler places. BatchCPU is what each
	// of them asks for (default: together all tested CPUs). 0: there is one batch pod,
	// which the lab binds to the node itself.
	Batch     int
	BatchCPU  unit.MilliCPU
	ConfigMap string // ConfigMap of Tenon as NAMESPACE/NAME (default: tenon-system/slo-controller-config)
	NGINX     string // images (default: those of the published experiment)
	FFmpeg    string
}

// clusterPort is the port of nginx on a tested node. The published experiment
// has the same port.
const clusterPort = 8000

// PodModes lists the default modes of the colocation experiment on a cluster in blocks,
// and KnownPodModes every mode. Some of them can only be switched.
var (
	PodModes      = onClusters(AllModes)
	KnownPodModes = slices.Concat(onClusters(slices.Concat(AllModes, NamedModes)), []report.Mode{report.Frozen, report.FrozenAA, report.Burstable, report.TenonNoSlices}, SizedModes)
)

func onClusters(modes []report.Mode) []report.Mode {
	return slices.DeleteFunc(slices.Clone(modes), func(m report.Mode) bool { return !m.Spec().Cluster })
}

// filmOfImage is the film in the image of ffmpeg.
const filmOfImage = "/apps/ffmpeg/input/HD2-h264.ts"

// onCluster sets the defaults that differ on a cluster, and calls fault for each
// fault that is one there.
func (c Config) onCluster(fault func(format string, args ...any)) Config {
	if !c.CPUs.Empty() {
		fault("--cpus %v: on a cluster the kubelet decides which CPUs pods may use: see reservedSystemCPUs and strict-cpu-reservation of its configuration", c.CPUs)
	}
	p := *c.Pods
	p.Target, p.ConfigMap = p.Target.OrDefaults(fault), cmp.Or(p.ConfigMap, "tenon-system/slo-controller-config")
	p.NGINX = cmp.Or(p.NGINX, "koordinatorsh/nginx:v1.18-koord-exmaple") //nolint:misspell // the image really has this name
	p.FFmpeg = cmp.Or(p.FFmpeg, "registry.cn-zhangjiakou.aliyuncs.com/acs/ffmpeg-4-4-1-for-slo-test:v0.1")
	if namespace, name, ok := strings.Cut(p.ConfigMap, "/"); !ok || namespace == "" || name == "" {
		fault("--config-map %q: want NAMESPACE/NAME", p.ConfigMap)
	}
	c.Pods, c.Port, c.Input = &p, cmp.Or(c.Port, clusterPort), cmp.Or(c.Input, filmOfImage)
	return c.batchPodDefaults(fault)
}

// pods is the experiment on a node of a cluster, after its set-up: nginx and ffmpeg
// run as pods, and the lab only sends the load and changes Tenon's strategies for
// that node. Close removes the pods and the strategies. If the experiment made the
// namespace, Close removes that, too.
type pods struct {
	bench
	space     *kubectl.Space // the namespace of the pods
	node      nodes.Node
	isolation string        // what tenond isolates by
	batch     unit.MilliCPU // what the batch pod requests in a mode with Tenon
	tenond    podName       // of the node; empty unless the modes are switched
}

// enterPods prepares the experiment on a cluster. Other users may have objects with
// the names of its pods and of its ConfigMap, so its own carry a label by which they
// are removed.
func enterPods(ctx context.Context, c Config) (_ site, err error) {
	b := &pods{bench: bench{Config: c}}
	b.Site, b.space, err = nodes.Enter(ctx, c.Setting, kubectl.Space{Target: c.Pods.Target, Experiment: "colocation", Objects: "pods,configmaps"})
	if err != nil {
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
	if err := b.findWrk(); err != nil {
		return nil, err
	}
	if b.switches() {
		if err := b.findSwitcher(ctx); err != nil {
			return nil, err
		}
	}
	return b, b.settleIn(ctx)
}

// findNode chooses the node to test and reads its description.
func (b *pods) findNode(ctx context.Context) error {
	name := b.Pods.Node
	if name == "" {
		reports, err := nodes.Reports(ctx, b.space.Client)
		if err != nil {
			return fmt.Errorf("find a node with Tenon: %w", err)
		}
		if len(reports) != 1 {
			return fmt.Errorf("%d nodes have Tenon: choose one with --node", len(reports))
		}
		name = reports[0].Metadata.Name
	}
	var err error
	if b.node, err = nodes.Named(ctx, b.space.Client, name); err != nil {
		return err
	}
	if b.node.Address == "" {
		return fmt.Errorf("node %s has no internal address", name)
	}
	r, err := nodes.ReportOf(ctx, b.space.Client, name)
	if err != nil {
		return fmt.Errorf("node %s has no report of tenond: %w", name, err)
	}
	b.versions = map[string]string{"kubelet": b.node.Kubelet, "container runtime": b.node.Runtime, "tenond": r.Status.Agent}
	b.isolation = r.Status.Isolation
	return nil
}

// settleIn checks that the namespace has room for the objects of the experiment, and
// marks the node for Tenon's strategies.
func (b *pods) settleIn(ctx context.Context) error {
	if err := b.checkNames(ctx); err != nil {
		return err
	}
	b.Undo = append(b.Undo, func() error {
		// The clean-up must finish even if the experiment was interrupted.
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		_, labelErr := b.space.Do(ctx, "", "label", "node", b.node.Name, strategyLabel+"-")
		return errors.Join(b.apply(ctx, nil), labelErr)
	})
	_, err := b.space.Do(ctx, "", "label", "node", b.node.Name, "--overwrite", strategyLabel+"="+strategyName)
	return err
}

// checkNames returns an error if another user's objects have the names of the
// objects of the experiment, which would replace them. At this time, the
// experiment has no objects of its own.
func (b *pods) checkNames(ctx context.Context) error {
	args := []string{"get", "pod/" + nginxPod, "pod/" + batchPod, "configmap/" + nginxConf, "--ignore-not-found", "-o", "name"}
	for i := range b.batchPods() {
		args = append(args, "pod/"+batchPodName(i))
	}
	out, err := b.space.Do(ctx, "", args...)
	if err != nil {
		return err
	}
	if has := strings.Fields(string(out)); len(has) > 0 {
		return fmt.Errorf("namespace %s has %s, not of this lab: choose another namespace with --namespace, or delete them",
			b.space.Namespace, strings.Join(has, ", "))
	}
	return nil
}

func (b *pods) overhead() time.Duration { return 12 * time.Second }
func (b *pods) least() time.Duration    { return 2 * longestAskPeriod }

func (b *pods) target() string {
	return "http://" + net.JoinHostPort(b.node.Address, strconv.Itoa(b.Port)) + "/"
}

// prepare starts a service to find out which CPUs it may use: nginx has as many
// workers. It then waits until the node offers what the batch work needs.
func (b *pods) prepare(ctx context.Context) error {
	st, err := b.setUp(ctx, report.ModeSpec{}, 0)
	if err == nil {
		err = st.close(ctx, nil)
	}
	b.size()
	if err != nil || b.switches() || !slices.ContainsFunc(b.Modes, func(m report.Mode) bool { return m.Spec().Isolates() }) {
		return err
	}
	return b.chooseBatch(ctx)
}

func (b *pods) describe(e *colocation.Experiment) {
	e.Input, e.Machine = b.Input, b.node.Machine(b.FS)
	e.Machine.Mechanisms = []string{b.isolation}
	if !b.switches() {
		e.Machine.Mechanisms = append(e.Machine.Mechanisms, fmt.Sprintf("CPU suppress at %d %% (%s)", Watermark, followed(b.Modes)))
	}
	e.Kubernetes = &colocation.KubernetesSetup{Node: b.node.Name, Images: map[string]string{"nginx": b.Pods.NGINX, "ffmpeg": b.Pods.FFmpeg}}
	if b.node.Here {
		b.caveats = append(b.caveats, "the client runs on the tested machine, on CPUs that the node's pods may not use: no network card, no network")
	}
	if b.Client == harness.ClientWrk {
		b.caveats = append(b.caveats, closedLoop)
	}
	if e.BatchPods = b.batchPods(); e.BatchPods > 0 && slices.Contains(b.Modes, report.Burstable) {
		e.BatchRequest = int(b.each())
	}
	if b.switches() {
		e.BatchRequest = batchRequest(b.Modes, requestOf(b.Place.Tested.Len()))
		b.caveats = append(b.caveats, "the modes change by writes of a process in the pod of the node's tenond, which reads the counters at the changes; a weight of requests is also that of other BestEffort pods of the node")
		return
	}
	if b.amounts() == nil {
		b.caveats = append(b.caveats, "batch-cpu was offered without regard to use (cpuReclaimThresholdPercent 1000): means of isolation are compared, not amounts")
	}
	b.caveats = append(b.caveats,
		fmt.Sprintf("counters are read from inside the pods every %v, which takes a CPU of the service a millisecond or two each time, alike in all modes", askPeriod(b.Duration)))
}
