// Package podpages shows which CPUs the pods of a cluster have, and which CPUs
// new pods would get. It prints the pages kubectl tenon explain pod, fit and
// map. It is pure: its caller reads the API. It chooses CPUs with the code of
// tenon-scheduler.
package podpages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodefit"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// A Cluster contains the nodes and pods of a cluster at one time.
type Cluster struct {
	nodes  []*nodeState
	pods   []corev1.Pod
	ledger *place.Ledger
	lacks  Lacks
	now    time.Time
}

// Lacks says which parts of a cluster could not be read, with the reasons, such
// as "you may not list nodes". An empty text means that the part is complete.
type Lacks struct {
	// Nodes: only nodes with a report are known, and of these only the report.
	Nodes string
	// Reports: no report is known.
	Reports string
	// Pods: only the pods of one namespace are known, or none.
	Pods string
}

// texts lists what could not be read, each with its reason.
func (l Lacks) texts() (all []string) {
	for _, part := range []struct{ what, why string }{{"nodes", l.Nodes}, {"reports of nodes", l.Reports}, {"pods of other namespaces, with what they request", l.Pods}} {
		if part.why != "" {
			all = append(all, fmt.Sprintf("%s (%s)", part.what, part.why))
		}
	}
	return all
}

// NotLookedAt lists what could not be read, each with its reason.
func (c *Cluster) NotLookedAt() []string { return c.lacks.texts() }

// hides returns why it is not known whether a node would take a pod with a
// demand, or "". Without the pods of other namespaces, this is known in part.
func (l Lacks) hides(demand *cpus.PodRequest) string {
	if l.Nodes != "" || demand == nil {
		return l.Nodes
	}
	return l.Reports
}

// A nodeState is a node with its free CPUs and resources.
type nodeState struct {
	nodepages.Node
	report   place.Report
	reported bool
	age      string              // of the report, or why there is none
	free     corev1.ResourceList // allocatable minus the requests of pods
}

// New makes a Cluster from nodes and pods. A node whose report is older than
// three minutes takes no pod that demands CPUs, as in the scheduler.
func New(nodes []nodepages.Node, pods []corev1.Pod, now time.Time) *Cluster {
	return NewPartly(nodes, pods, Lacks{}, now)
}

// NewPartly makes a Cluster of what could be read.
func NewPartly(nodes []nodepages.Node, pods []corev1.Pod, lacks Lacks, now time.Time) *Cluster {
	c := &Cluster{pods: pods, ledger: place.New(), lacks: lacks, now: now}
	for _, n := range nodes {
		c.nodes = append(c.nodes, c.learn(n, now))
	}
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if n := c.node(p.Spec.NodeName); n != nil {
			n.take(p)
		}
		if demand, asks, _ := kube.DemandOf(stored.InForce(p)); asks {
			contract, _, _ := kube.ChoiceOf(p)
			c.ledger.Confirm(place.Pod{UID: uidOf(p), Request: demand}, p.Spec.NodeName, contract)
		}
	}
	return c
}

// learn adds a node with its report to the cluster.
func (c *Cluster) learn(n nodepages.Node, now time.Time) *nodeState {
	s := &nodeState{Node: n, free: corev1.ResourceList{}} // take writes into it, also if the node has no allocatable yet
	for name, q := range n.Status.Allocatable {
		s.free[name] = q.DeepCopy()
	}
	if n.Report == nil || n.Report.Status.CPUs == nil {
		s.age = cmp.Or(n.Left(), n.Unread)
		return s
	}
	var err error
	if s.report, err = cpureport.Read(n.Report.Status.CPUs); err != nil {
		s.age = "the report cannot be read: " + err.Error()
		return s
	}
	s.reported = true
	s.age = n.Age(now)
	c.ledger.Learn(n.Name, s.report)
	if n.IsSilent(now) {
		c.ledger.CloseNode(n.Name, cpus.Stale)
	}
	return s
}

// Pod returns a pod of the cluster, or nil.
func (c *Cluster) Pod(namespace, name string) *corev1.Pod {
	for i := range c.pods {
		if p := &c.pods[i]; p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

func (c *Cluster) node(name string) *nodeState {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// take subtracts the requests of a pod from the free resources of a node.
func (n *nodeState) take(p *corev1.Pod) {
	for name, q := range requestsOf(p) {
		left := n.free[name]
		left.Sub(q)
		n.free[name] = left
	}
}

// requestsOf returns the resources that a pod requests. They include one place
// in the node's limit of pods (pods: 1).
func requestsOf(p *corev1.Pod) corev1.ResourceList {
	all := helper.PodRequests(p, helper.PodResourcesOptions{})
	all[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return all
}

// A candidate is a pod that needs a node.
type candidate struct {
	*corev1.Pod
	demand *cpus.PodRequest // nil if the pod demands no CPUs
	only   string           // the only node that the pod may have; empty: any node
	// pinned means that the manifest of the pod names the node. Then no scheduler
	// handles the pod, and only the kubelet checks whether it fits.
	pinned bool
}

// closed returns why the node has no CPU for any pod, or "".
func (n *nodeState) closed() string { return cmp.Or(n.Left(), n.AllReserved()) }

// exclusion returns the reason why a pod may never run on a node, or "".
func (n *nodeState) exclusion(p candidate) string {
	switch taint, excludes := nodefit.Excludes(p.Pod, n.Node.Node, p.pinned); {
	case taint != nil:
		return fmt.Sprintf("the pod does not tolerate the taint %s", taint.ToString())
	case excludes:
		return "the pod's node selector or affinity excludes the node"
	}
	return ""
}

// A lack is a resource of which a node has less left than a pod requests.
type lack struct {
	name            string
	want, left, all resource.Quantity
}

// short is the text of kube-scheduler, which is the same for all nodes.
func (l *lack) short() string { return "insufficient " + l.name }

// String prints the lack with its numbers.
func (l *lack) String() string {
	all, noun := l.all.String(), ""
	if l.name == string(corev1.ResourceCPU) {
		if noun = " CPUs"; l.all.Cmp(resource.MustParse("1")) == 0 {
			noun = " CPU"
		}
	}
	left := l.left
	if left.Sign() < 0 {
		left = *resource.NewQuantity(0, left.Format)
	}
	return fmt.Sprintf("%s: requests %s, %s of %s%s left", l.short(), l.want.String(), left.String(), all, noun)
}

// shortage returns the first resource, by name, of which the node has too little
// left for a pod, or nil.
func (n *nodeState) shortage(p candidate) *lack {
	requests := requestsOf(p.Pod)
	names := make([]string, 0, len(requests))
	for name := range requests {
		names = append(names, string(name))
	}
	slices.Sort(names)
	for _, name := range names {
		want, left := requests[corev1.ResourceName(name)], n.free[corev1.ResourceName(name)]
		if want.Sign() > 0 && want.Cmp(left) > 0 {
			return &lack{name, want, left, n.Status.Allocatable[corev1.ResourceName(name)]}
		}
	}
	return nil
}

// An answer tells whether a node would take a pod, and with which CPUs.
type answer struct {
	node     *nodeState
	why      []string // the reasons why the pod does not fit; empty: it fits
	lack     *lack    // the numbers behind the first reason, if it is a resource
	worth    int64    // rating of a node that has the CPUs
	share    float64  // of the node's CPU that no pod requests
	contract place.Contract
	offer    pick.Offer
}

// ask returns the answer of a node to a pod. It makes those checks of
// kube-scheduler that concern the node alone.
func (c *Cluster) ask(n *nodeState, p candidate) answer {
	a := answer{node: n, share: n.idleShare()}
	if why := n.exclusion(p); why != "" {
		a.why = append(a.why, why)
	} else if a.lack = n.shortage(p); a.lack != nil {
		a.why = append(a.why, a.lack.short())
	}
	if p.demand == nil {
		return a
	}
	view := c.ledger.View(n.Name)
	contract, offer, why := view.Offer(p.demand)
	if why != cpus.Fits {
		a.why = append(a.why, cmp.Or(n.closed(), why.Text()))
		return a
	}
	a.contract, a.offer, a.worth = contract, offer, view.Worth(p.demand)
	return a
}

// askAll returns the answers of all nodes that the pod may use. Nodes that take
// the pod come first, beginning with the best node.
func (c *Cluster) askAll(p candidate) []answer {
	var all []answer
	for _, n := range c.nodes {
		if p.only == "" || p.only == n.Name {
			all = append(all, c.ask(n, p))
		}
	}
	slices.SortFunc(all, compareAnswers)
	return all
}

// compareAnswers orders the answers to one pod: nodes that take it first, and of
// these the best one. No two nodes are equal.
func compareAnswers(a, b answer) int {
	return cmp.Or(
		cmp.Compare(min(len(a.why), 1), min(len(b.why), 1)), cmp.Compare(b.worth, a.worth), cmp.Compare(b.share, a.share), strings.Compare(a.node.Name, b.node.Name))
}

// askBestAgain returns the answers after the best node has taken a pod. All pods
// have the same demand, so the other answers stay.
func (c *Cluster) askBestAgain(answers []answer, p candidate) []answer {
	again := c.ask(answers[0].node, p)
	rest := answers[1:]
	at, _ := slices.BinarySearchFunc(rest, again, compareAnswers)
	copy(answers, rest[:at])
	answers[at] = again
	return answers
}

// idleShare returns the part of the node's CPU that no pod requests: 0 to 1.
func (n *nodeState) idleShare() float64 {
	free, all := n.free[corev1.ResourceCPU], n.Status.Allocatable[corev1.ResourceCPU]
	if all.Sign() <= 0 {
		return 0
	}
	return free.AsApproximateFloat64() / all.AsApproximateFloat64()
}

// demandOf returns the CPUs that a pod demands, or nil if it demands none.
func demandOf(p *corev1.Pod) *cpus.PodRequest {
	demand, asks, _ := kube.DemandOf(p)
	if !asks {
		return nil
	}
	return &demand
}

// uidOf returns the UID under which a pod is in the ledger and in the report of
// its node.
func uidOf(p *corev1.Pod) place.UID { return place.UID(kube.UIDOnNode(p)) }

// nameOf returns the namespace and name of a pod.
func nameOf(p *corev1.Pod) string { return cmp.Or(p.Namespace, corev1.NamespaceDefault) + "/" + p.Name }
