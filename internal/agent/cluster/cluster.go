// Package cluster follows the Kubernetes cluster of a node for tenond: the pods and
// the configuration of the node, the evictions, and the reports about the node.
package cluster

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

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cluster/containerstart"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// Kubernetes holds the settings of a node in a cluster: where tenond finds the
// pods and the configuration.
type Kubernetes struct {
	// Node is the name of the node.
	Node string
	// API is the client of the API server.
	API *apiserver.Client
	// Kubelet is the client of the kubelet, which knows the pods of the node. The
	// agent asks it every Poll, and when cgroups of pods come or go.
	Kubelet kubelet.Kubelet
	Poll    time.Duration
	// Namespace and ConfigMap identify the ConfigMap with the configuration.
	Namespace, ConfigMap string
	// NRI is the NRI socket of the container runtime. If it is "", the agent does
	// not use NRI.
	NRI string
	// Leaves is called when the daemon must stop. It reports whether Tenon is
	// removed from the node for good. Then the daemon restores the kubelet's
	// values in all containers, and calls Released (unless nil). While its
	// container stops, the daemon cannot open a new NRI connection. If Leaves is
	// nil, Tenon stays.
	Leaves   func() bool
	Released func()
}

const (
	// The first tick waits until the pods and the configuration are known. It
	// waits at most for firstWait, or for againWait if an earlier daemon saved
	// them. After a longer wait, the watchdog would narrow best-effort work.
	firstWait = 3 * time.Second
	againWait = 500 * time.Millisecond
)

// ErrUnknown prevents decisions before the pods and the configuration are
// known, from the cluster or from an earlier daemon. An early decision would
// release all knobs that the earlier daemon set.
var ErrUnknown = errors.New("the pods or the configuration of this node are not known yet")

// A Follower knows the pods and the configuration of the node. This knowledge
// survives an outage of the API server or the kubelet, and a restart of the daemon.
// Only the goroutine of the loop calls its methods.
type Follower struct {
	Kubernetes
	log     *slog.Logger
	dir     string
	tree    *cgroup.Tree
	lives   func(node.CgroupPath) bool // reports whether there are processes in or below a cgroup
	changed func()                     // is called when the workloads may have changed
	news    func(tick.Event)

	pods    *kubelet.Source
	self    *apiserver.Watch[*corev1.Node]
	configs *apiserver.Watch[*corev1.ConfigMap]
	// byspace are the ConfigMaps named kube.PodConfigMap. There is one watch for
	// each namespace that counts: a watch of all namespaces would bring every
	// tenant's ConfigMap of that name to every node.
	byspace   []*apiserver.Watch[*corev1.ConfigMap]
	stale     atomic.Bool // the configuration may have changed
	evictions *evictionQueue
	starting  *containerstart.Containers
	link      atomic.Pointer[nri.Link] // state of NRI; nil: unknown
	// alone are the UIDs of the running pods that Tenon leaves alone; nil: none.
	alone atomic.Pointer[map[string]bool]
	// queries says that a pod has an objective with the source query. queried is the
	// last answer of the manager; nil: there is no new one.
	queries atomic.Bool
	queried atomic.Pointer[v1alpha1.Queried]

	// Only the loop uses the fields below.
	last     savedState
	saved    []byte // last in the form in which it was last written to the file
	cfg      nodeConfig
	paths    []string
	unsent   []string        // remarks about running pods that the last list lacks
	deleted  map[string]bool // UIDs of pods in last.Pods that were deleted
	view     podView
	resized  map[node.CgroupPath]resize // recent resizes
	reporter *reporter
	bounds   *boundTeller
}

// Node holds the daemon's node for a Follower: its files and its functions.
type Node struct {
	Version  string // of tenond
	StateDir string // keeps the last pods and configuration
	Tree     *cgroup.Tree
	Changed  func()           // is called when the workloads may have changed
	News     func(tick.Event) // wakes the loop
	// Signal ends the processes of a pod by signals, and Prepare makes a pod able
	// to end, for example thaws it.
	Signal  func(context.Context, plan.Step) error
	Prepare func(node.Knob) error
}

// Follow returns a Follower that knows what an earlier daemon saved. It follows the
// cluster when Run is called.
func Follow(k Kubernetes, n Node, fs proc.FS, log *slog.Logger) *Follower {
	c := &Follower{Kubernetes: k, log: log, dir: n.StateDir, tree: n.Tree, lives: livesIn(n.Tree), changed: n.Changed, news: n.News}
	var err error
	if c.last, err = loadState(n.StateDir, fs); err != nil {
		log.Warn("the state of the cluster that the last tenond saved cannot be used", "error", err)
	}
	c.starting = containerstart.New(func() {
		c.changed()
		c.news(tick.Event{At: time.Now(), Kind: tick.EventStart, Text: "a container is about to start"})
	})
	c.stale.Store(true)
	config := func() {
		c.stale.Store(true)
		c.news(tick.Event{At: time.Now(), Kind: tick.EventConfig, Text: "the ConfigMap, or the labels or annotations of the node, have changed"})
	}
	c.self = k.API.Node(k.Node, config)
	c.configs = k.API.ConfigMap(k.Namespace, k.ConfigMap, config)
	for _, namespace := range podConfigNamespaces(k.Namespace) {
		c.byspace = append(c.byspace, k.API.ConfigMap(namespace, kube.PodConfigMap, config))
	}
	standIn := func(changed func()) kubelet.StandIn { return k.API.Pods(k.Node, kubelet.SlimOfAPI, changed) }
	c.pods = kubelet.NewSource(k.Kubelet, standIn, k.Poll, log, c.podsChanged)
	c.pods.Assume(c.last.Facts)
	c.evictions = newEnds(k.API, k.Node, log, c.podsChanged)
	c.evictions.signal, c.evictions.prepare = n.Signal, n.Prepare
	c.evictions.away = func() bool {
		heard, err := c.self.Trouble()
		return awayBy(heard, err, time.Now())
	}
	c.reporter = newReporter(k.API, k.Node, n.Version, log)
	c.bounds = newBoundTeller(k.API, k.Node, log)
	return c
}

func (c *Follower) podsChanged() {
	c.changed()
	c.news(tick.Event{At: time.Now(), Kind: tick.EventCgroups, Text: "pods have come, gone or changed"})
}

// Run starts the goroutines that watch the cluster until ctx ends.
func (c *Follower) Run(ctx context.Context, background *sync.WaitGroup) {
	background.Go(func() { c.pods.Run(ctx) })
	background.Go(func() { c.self.Run(ctx) })
	background.Go(func() { c.configs.Run(ctx) })
	for _, w := range c.byspace {
		background.Go(func() { w.Run(ctx) })
	}
	background.Go(func() { c.evictions.run(ctx) })
	background.Go(func() { c.bounds.run(ctx) })
	background.Go(func() { c.hearQueried(ctx) })
	c.reporter.start(ctx, background)
	if c.NRI != "" {
		background.Go(func() { c.nri(ctx) })
	}
}

// AwaitFirst waits until the pods and the configuration are known. It waits at
// most for firstWait or againWait.
func (c *Follower) AwaitFirst(ctx context.Context) {
	wait := firstWait
	if !c.IsUnknown() {
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

// Begin begins a tick. Begin and End must enclose each tick, so that the Follower
// knows which containers the tick has seen.
func (c *Follower) Begin() { c.starting.Begin() }

// End ends a tick, and reports it to the API server. by is the configuration of the
// policies in the tick, and troubles are the troubles of the agent itself.
func (c *Follower) End(t tick.Tick, by policy.Config, troubles []string) {
	c.starting.End()
	if t.Shadow == nil {
		c.bounds.follow(t, c.view.pods)
	}
	c.report(t, by, troubles)
}

// Evict accepts a step that freezes or ends a pod. If it returns false, the caller
// must perform the step itself.
func (c *Follower) Evict(s plan.Step) (taken bool, err error) { return c.evictions.take(s) }

// Arriving returns the pods of the last Workloads that have no cgroup yet.
func (c *Follower) Arriving() []node.Workload { return c.view.arriving }

// Rules returns the rules of the ConfigMap for programs outside Kubernetes.
func (c *Follower) Rules() []match.Rule { return rulesOf(c.cfg.node.Applications, c.layout()) }

// Workloads returns the pods of the node, and then the workloads of rules that are
// not in a pod. It leaves out the pod that contains home, the cgroup of the daemon.
// paths are all existing cgroups. If pods were resized, correct corrects the values
// in the journal (host.Rebase).
func (c *Follower) Workloads(paths []string, rules []node.Workload, home node.CgroupPath, correct func(func(node.Knob, node.Value) node.Value) error) (all []node.Workload, remarks []string) {
	c.look(paths)
	pods := slices.DeleteFunc(c.workloads(), func(w node.Workload) bool { return w.Cgroup.Contains(home) })
	c.noteRebase(correct(c.view.change))
	left, remarks := dropPodCgroups(rules, pods)
	return append(pods, left...), append(remarks, c.view.status.Remarks...)
}

// look asks the kubelet for its pods at once if a cgroup of a pod appeared or
// disappeared. paths are all existing cgroups.
func (c *Follower) look(paths []string) {
	before := c.paths
	c.paths = paths
	isPod := func(path string) bool {
		_, is := kube.ParsePodPath(node.CgroupPath(path))
		return is
	}
	if before != nil && match.Differ(before, paths, isPod) {
		c.pods.Look()
	}
}

// layout returns the arrangement of the cgroups of pods. The kubelet reports
// it, now or before a restart of the daemon. Without a report, layout infers
// the arrangement from the existing cgroups. It does so also if they contradict
// the cgroup driver in the report: a kubelet of 1.31 to 1.34 that gets the driver
// from the runtime reports that of its configuration (kubernetes/kubernetes#134743).
func (c *Follower) layout() kube.Layout {
	l := kube.Layout{Systemd: c.last.Facts.CgroupDriver == "systemd", Root: c.last.Facts.CgroupRoot}
	other := l
	other.Systemd = !l.Systemd
	switch {
	case c.last.Facts.CgroupDriver == "":
		l.Systemd = slices.ContainsFunc(c.paths, func(p string) bool { return strings.HasSuffix(p, "kubepods.slice") })
	case !c.isUsed(l) && c.isUsed(other):
		return other
	}
	return l
}

// isUsed reports whether the cgroup of all pods exists in a layout.
func (c *Follower) isUsed(l kube.Layout) bool {
	return slices.Contains(c.paths, string(l.QOS(corev1.PodQOSGuaranteed)))
}

// IsUnknown reports whether the pods or the configuration are still unknown.
func (c *Follower) IsUnknown() bool { return !c.last.PodsKnown || !c.last.ConfigKnown }

// take stores the list of pods from the kubelet or the API server. A pod missing
// in the list stays known while its cgroup has a process. For example, a kubelet
// that has just started lists only static pods until it has reached the API
// server. No kubelet lists a pod that was deleted by force.
func (c *Follower) take(known kubelet.Known) {
	if known.Facts != (kubelet.Facts{}) {
		c.last.Facts = known.Facts
	}
	if known.At.IsZero() {
		return // the pods from an earlier daemon stay valid
	}
	told := make(map[string]bool, len(known.Pods))
	for i := range known.Pods {
		told[kube.UID(&known.Pods[i])] = true
	}
	l := c.layout()
	var untold []corev1.Pod
	before := c.deleted
	c.unsent, c.deleted = nil, map[string]bool{}
	for i := range c.last.Pods {
		if p := &c.last.Pods[i]; !told[kube.UID(p)] && !kube.HasEnded(p) && c.lives(l.Pod(p)) {
			untold = append(untold, *p)
			c.deleted[kube.UID(p)] = before[kube.UID(p)] || isDeleted(p, known)
			c.unsent = append(c.unsent, fmt.Sprintf("pod %s/%s is not among those of the %s and still has processes: tenond manages it until they end", p.Namespace, p.Name, known.From))
		}
	}
	c.last.PodsKnown, c.last.Pods = true, c.starting.AddTo(slices.Concat(known.Pods, untold), time.Now())
}

// livesIn returns a function that reports whether a cgroup or the cgroups below
// it contain processes. For a cgroup that cannot be read, it returns true.
func livesIn(tree *cgroup.Tree) func(node.CgroupPath) bool {
	return func(p node.CgroupPath) bool {
		lives, err := tree.IsPopulated(string(p))
		return lives || err != nil && tree.Exists(string(p))
	}
}
