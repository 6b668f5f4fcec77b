package podpages

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/objectivetext"
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
