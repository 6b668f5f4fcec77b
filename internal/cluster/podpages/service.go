package podpages

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/objectivetext"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
)

// Services returns the services with an objective, as the reports of the nodes say.
func (c *Cluster) Services() []objectivetext.Service {
	nodes := make([]nodepages.Node, 0, len(c.nodes))
	for _, n := range c.nodes {
		if !n.IsSilent(c.now) {
			nodes = append(nodes, n.Node)
		}
	}
	return objectivetext.Services(nodes, c.serviceOf)
}

// Uncounted lists what Services leaves out: the services of nodes whose state is not
// known any more, and those for which the report of a node has no room.
func (c *Cluster) Uncounted() (all []string) {
	for _, n := range c.nodes {
		if n.Report == nil || n.Report.Status.Objectives == nil {
			continue
		}
		if n.IsSilent(c.now) {
			all = append(all, "services on "+n.Name+", which last reported "+n.Age(c.now))
		} else if more := n.Report.Status.Objectives.More; more > 0 {
			all = append(all, strconv.Itoa(int(more))+" services on "+n.Name+", for which its report has no room")
		}
	}
	return all
}

// objectiveText says which objective the pods of a manifest state. For waits, it names
// the nodes that they would get and on which no service keeps one as short, also while
// there is no batch work to wait for. It returns "" if they state none.
func (c *Cluster) objectiveText(name string, as *corev1.Pod, placed []FitPod) string {
	o, said, _ := kube.ObjectiveOf(as, kube.ClassWithDefault(as))
	if !said || o == (node.Objective{}) {
		return ""
	}
	text := fmt.Sprintf("%s states an objective: %s", name, verdict.Wants(o))
	least := map[string]time.Duration{}
	for _, p := range placed {
		quiet := c.leastQuiet(p.Node)
		if (slo.Judgement{Objective: o.RunQueueDelay.Or(0), Quiet: slo.Quiet{Tail: quiet}}).TooShort() {
			least[p.Node] = quiet
		}
	}
	for _, on := range slices.Sorted(maps.Keys(least)) {
		text += fmt.Sprintf("; on %s, no service keeps less than %s, also without batch work", on, verdict.Short(least[on]))
	}
	return text
}

// leastQuiet returns the shortest time within which 99 of 100 waits of a service of a
// node ended without batch work. It returns 0 if that is not known.
func (c *Cluster) leastQuiet(name string) (least time.Duration) {
	n := c.node(name)
	if n == nil || n.Report == nil || n.Report.Status.Objectives == nil {
		return 0
	}
	for _, s := range n.Report.Status.Objectives.Services {
		if s.Quiet != nil && (least == 0 || s.Quiet.Duration < least) {
			least = s.Quiet.Duration
		}
	}
	return least
}

// serviceOf returns the name of the controller of a pod, such as that of its
// Deployment. It is the name of the pod if it has none, or if it is not known.
func (c *Cluster) serviceOf(namespace, pod string) string {
	p := c.Pod(namespace, pod)
	if p == nil {
		return pod
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return pod
	}
	if hash := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; owner.Kind == "ReplicaSet" && hash != "" {
		return strings.TrimSuffix(owner.Name, "-"+hash)
	}
	return owner.Name
}
