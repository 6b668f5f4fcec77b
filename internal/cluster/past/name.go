package past

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/decide/prospect"
)

// Aliases are numbers in place of names. The same names give the same numbers.
type Aliases struct{ nodes, pools, namespaces, services map[string]string }

// AliasesOf numbers names. All lists are sorted and without duplicates. A service is
// namespace/name.
func AliasesOf(nodes, pools, services []string) Aliases {
	number := func(kind string, names []string) map[string]string {
		all := make(map[string]string, len(names))
		for i, name := range names {
			all[name] = fmt.Sprintf("%s-%d", kind, i+1)
		}
		return all
	}
	a := Aliases{nodes: number("node", nodes), pools: number("pool", pools), namespaces: map[string]string{}, services: map[string]string{}}
	within := map[string]int{}
	for _, service := range services {
		namespace, _, _ := strings.Cut(service, "/")
		if a.namespaces[namespace] == "" {
			a.namespaces[namespace] = fmt.Sprintf("namespace-%d", len(a.namespaces)+1)
		}
		within[namespace]++
		a.services[service] = fmt.Sprintf("%s/service-%d", a.namespaces[namespace], within[namespace])
	}
	return a
}

// Hide replaces all names of a node. A name that has no number is left out.
func (a Aliases) Hide(n prospect.Node) prospect.Node {
	n.Name, n.Pool = a.nodes[n.Name], a.pools[n.Pool]
	hurt := make([]prospect.Hurt, len(n.Hurt))
	for i, h := range n.Hurt {
		h.Service, h.By = a.services[h.Service], a.services[h.By]
		hurt[i] = h
	}
	n.Hurt = hurt
	return n
}

// ServiceOf returns the name of the service of a pod, namespace/name: that of the
// controller of its controller, as far as the names that Kubernetes gives tell it. kind
// and owner are its controller, or empty if that is not known.
func ServiceOf(p Pod, kind, owner string) string {
	name := owner
	switch {
	case owner == "" || kind == "" || kind == "<none>" || kind == "Node":
		name = p.Name
	case kind == "ReplicaSet":
		// A Deployment adds a hash of the template.
		name = cutEnd(owner, "bcdfghjklmnpqrstvwxz2456789", 5, 10)
	case kind == "Job":
		name = cutEnd(owner, "0123456789", 8, 8) // a CronJob adds the minute
	}
	return p.Namespace + "/" + name
}

// cutEnd returns a name without its last part after a hyphen, if that has least to most
// characters of the alphabet.
func cutEnd(name, alphabet string, least, most int) string {
	i := strings.LastIndexByte(name, '-')
	if end := name[i+1:]; i > 0 && len(end) >= least && len(end) <= most && strings.Trim(end, alphabet) == "" {
		return name[:i]
	}
	return name
}
