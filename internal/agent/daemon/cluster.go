package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// Kubernetes says how tenond finds its pods and its configuration where the
// node is one of a cluster.
type Kubernetes struct {
	// Node is the name of the node.
	Node string
	// API is the API server.
	API *apiserver.Client
	// Kubelet tells the pods. It is asked every Poll, and when cgroups of pods
	// come or go.
	Kubelet kubelet.Kubelet
	Poll    time.Duration
	// Namespace and ConfigMap name the ConfigMap with the configuration.
	Namespace, ConfigMap string
	// NRI is the socket at which the container runtime offers NRI; empty: it is
	// not asked.
	NRI string
	// Leaves is asked when the daemon is told to end: whether the node leaves
	// Tenon, so that containers get the kubelet's values back; nil: it does not.
	// The runtime takes no new connection then if the daemon itself runs in a
	// container. Released is called when they have got them; nil: it is not.
	Leaves   func() bool
	Released func()
}

const (
	// firstWait is how long the first turn waits for pods and configuration
	// where nothing is known of them, and againWait where an earlier daemon knew
	// them: while nobody turns the loop, best-effort work is about to be
	// narrowed.
	firstWait = 3 * time.Second
	againWait = 500 * time.Millisecond
)

// errUnknown keeps the loop from deciding while it knows neither from the
// cluster nor from an earlier daemon what it is to look after: it would let go of
// all that the last one holds.
var errUnknown = errors.New("the pods or the configuration of this node are not known yet")

// A cluster is what the daemon knows of the cluster that its node is part of.
// What it knows outlasts the API server and the kubelet, and a restart.
type cluster struct {
	Kubernetes
	log     *slog.Logger
	dir     string
	tree    *cgroup.Tree
	lives   func(node.CgroupPath) bool // there are processes in or below the group
	changed func()                     // the workloads may be others
	news    func(tick.Event)

	pods    *kubelet.Source
	self    *apiserver.Watch[*corev1.Node]
	configs *apiserver.Watch[*corev1.ConfigMap]
	byspace *apiserver.Watch[*corev1.ConfigMap] // kube.PodConfigMap
	stale   atomic.Bool                         // the configuration may be another
	ends    *ends
	link    atomic.Pointer[nri.Link] // nil: nothing is known of it

	// The rest is the loop's own.
	kept     kept
	saved    []byte // kept, as it was written last
	cfg      clusterConfig
	paths    []string
	untold   []string // remarks on pods that live and that nobody tells
	view     podView
	resized  map[node.CgroupPath]resize // lately
	reporter *clusterReporter
}

// openCluster takes what an earlier daemon knew. Changed is called when the
// workloads may be others.
func openCluster(k Kubernetes, version, dir string, tree *cgroup.Tree, fs proc.FS, log *slog.Logger, changed func(), news func(tick.Event)) *cluster {
	c := &cluster{Kubernetes: k, log: log, dir: dir, tree: tree, lives: livesIn(tree), changed: changed, news: news}
	var err error
	if c.kept, err = loadKept(dir, fs); err != nil {
		log.Warn("what the last tenond knew of the cluster is not used", "error", err)
	}
	c.stale.Store(true)
	config := func() {
		c.stale.Store(true)
		c.news(tick.Event{At: time.Now(), Kind: tick.EventConfig, Text: "the ConfigMap, or the labels or annotations of the node, have changed"})
	}
	c.self = k.API.Node(k.Node, config)
	c.configs = k.API.ConfigMap(k.Namespace, k.ConfigMap, config)
	c.byspace = k.API.ConfigMap(k.Namespace, kube.PodConfigMap, config)
	standIn := func(changed func()) kubelet.StandIn { return k.API.Pods(k.Node, kubelet.SlimOfAPI, changed) }
	c.pods = kubelet.NewSource(k.Kubelet, standIn, k.Poll, log, c.podsChanged)
	c.ends = newEnds(k.API, k.Node, log, c.podsChanged)
	c.ends.away = func() bool {
		heard, err := c.self.Trouble()
		return awayBy(heard, err, time.Now())
	}
	c.reporter = newClusterReporter(k.API, k.Node, version, log)
	return c
}

func (c *cluster) podsChanged() {
	c.changed()
	c.news(tick.Event{At: time.Now(), Kind: tick.EventCgroups, Text: "pods have come, gone or changed"})
}

// run keeps what is known up to date until ctx ends.
func (c *cluster) run(ctx context.Context, background *sync.WaitGroup) {
	background.Go(func() { c.pods.Run(ctx) })
	background.Go(func() { c.self.Run(ctx) })
	background.Go(func() { c.configs.Run(ctx) })
	background.Go(func() { c.byspace.Run(ctx) })
	background.Go(func() { c.ends.run(ctx) })
	c.reporter.start(ctx, background)
	if c.NRI != "" {
		background.Go(func() { c.nri(ctx) })
	}
}

// first waits until the pods and the configuration are known, but not for long.
func (c *cluster) first(ctx context.Context) {
	wait := firstWait
	if !c.unknown() {
		wait = againWait
	}
	soon, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		_, node := c.self.Objects()
		_, config := c.configs.Objects()
		known := c.pods.Known()
		if node && config && !known.At.IsZero() {
			return
		}
		select {
		case <-soon.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// look has the kubelet asked if a cgroup of a pod has come or gone.
func (c *cluster) look(paths []string) {
	before := c.paths
	c.paths = paths
	isPod := func(path string) bool {
		_, is := kube.ParsePath(node.CgroupPath(path))
		return is
	}
	if before != nil && match.Differ(before, paths, isPod) {
		c.pods.Look()
	}
}

// layout is where the kubelet puts the cgroups of pods: as it says, or has said
// to an earlier daemon, or else as the cgroups look.
func (c *cluster) layout() kube.Layout {
	l := kube.Layout{Systemd: c.kept.Facts.CgroupDriver == "systemd", Root: c.kept.Facts.CgroupRoot}
	if c.kept.Facts.CgroupDriver == "" {
		l.Systemd = slices.ContainsFunc(c.paths, func(p string) bool { return strings.HasSuffix(p, "kubepods.slice") })
	}
	return l
}

// unknown reports that nobody has told of the pods or of the configuration yet.
func (c *cluster) unknown() bool { return !c.kept.PodsKnown || !c.kept.ConfigKnown }

// take takes what the kubelet, or the API server, says of the pods. A kubelet
// that has just started tells none, or those of files only, until the API server
// has told it the others; and it does not tell a pod that was deleted by force
// while processes of it are left. So a pod stays for as long as it lives.
func (c *cluster) take(known kubelet.Known) {
	if known.Facts != (kubelet.Facts{}) {
		c.kept.Facts = known.Facts
	}
	if known.At.IsZero() {
		return // those of an earlier daemon hold
	}
	told := make(map[string]bool, len(known.Pods))
	for i := range known.Pods {
		told[kube.UID(&known.Pods[i])] = true
	}
	l := c.layout()
	var untold []corev1.Pod
	c.untold = nil
	for i := range c.kept.Pods {
		if p := &c.kept.Pods[i]; !told[kube.UID(p)] && !kube.Ended(p) && c.lives(l.Pod(p)) {
			untold = append(untold, *p)
			c.untold = append(c.untold, fmt.Sprintf("pod %s/%s is not among those of the %s and still has processes: it is looked after until they are gone", p.Namespace, p.Name, known.From))
		}
	}
	c.kept.PodsKnown, c.kept.Pods = true, slices.Concat(known.Pods, untold)
}

// livesIn asks a tree whether groups have processes. One that cannot be told
// has some while it is there.
func livesIn(tree *cgroup.Tree) func(node.CgroupPath) bool {
	return func(p node.CgroupPath) bool {
		lives, err := tree.Populated(string(p))
		return lives || err != nil && tree.Exists(string(p))
	}
}
