package podpages

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/cluster/cpumap"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/table"
)

// Map returns the map of the CPUs of a node. If there is none, the error says
// why.
func (c *Cluster) Map(name string) (*cpumap.Map, error) {
	n, err := c.reporting(name)
	if err != nil {
		return nil, err
	}
	return cpumap.New(cpumap.Node{
		Name: name, Reported: n.Report.Status.Reported.Time, Made: c.now, Silent: n.IsSilent(c.now), Fault: n.AllReserved(), Manager: n.report.Manager,
		Keep: n.report.Keep, Reserved: n.report.Reserved, Refused: c.refused(n), Topology: n.report.Topology,
	}, c.owners(n)), nil
}

// reporting returns a node that reports its CPUs. If there is none, the error
// says why.
func (c *Cluster) reporting(name string) (*nodeState, error) {
	n := c.node(name)
	switch {
	case n == nil && c.lacks.Nodes != "":
		return nil, fmt.Errorf("there is no report of a node %q, and %s", name, c.lacks.Nodes)
	case n == nil:
		return nil, fmt.Errorf("there is no node %q", name)
	}
	if !n.reported {
		return nil, fmt.Errorf("node %s: %s", name, cmp.Or(n.age, cpus.NoReport.Text()))
	}
	return n, nil
}

// owners returns the pods that hold CPUs of a node.
func (c *Cluster) owners(n *nodeState) []cpumap.Owner {
	names := map[place.UID]string{}
	for i := range c.pods {
		names[uidOf(&c.pods[i])] = nameOf(&c.pods[i])
	}
	all := []cpumap.Owner{}
	view := c.ledger.View(n.Name)
	holds := view.Holds()
	for _, uid := range slices.Sorted(maps.Keys(holds)) {
		a := holds[uid]
		o := cpumap.Owner{
			Pod: cmp.Or(names[uid], string(uid)), UID: string(uid), Policy: a.Policy, CPUs: a.CPUs, Domain: a.Domain, CPU: a.CPU,
			Why: "not reported by the node yet",
		}
		if has := n.Report.Status.CPUs.Pod(string(uid)); has != nil && has.CPUs != "" {
			o.By, o.Code, o.Why, o.Reported = has.By, has.Code, has.Why, true
		}
		if a.Policy != cpus.Exclusive {
			o.Request, o.Where = a.CPU.String(), view.Map().LevelOf(a.Domain).One()
		}
		all = append(all, o)
	}
	return all
}

// refused returns the pods of a node that ask for CPUs and to which the node
// gave none. It leaves out pods that have ended since the report.
func (c *Cluster) refused(n *nodeState) []cpumap.Refused {
	var all []cpumap.Refused
	for i := range c.pods {
		p := &c.pods[i]
		has := n.Report.Status.CPUs.Pod(string(uidOf(p)))
		demand := demandOf(stored.InForce(p))
		if has == nil || has.CPUs != "" || demand == nil || p.Spec.NodeName != n.Name || kube.HasEnded(p) {
			continue
		}
		all = append(all, cpumap.Refused{Pod: nameOf(p), UID: has.UID, Policy: demand.Policy, Code: has.Code, Why: has.Why})
	}
	slices.SortFunc(all, func(a, b cpumap.Refused) int { return strings.Compare(a.Pod, b.Pod) })
	return all
}

// Lines prints a one-line map of each node on which pods hold CPUs. It returns
// "" if there is no such node.
func (c *Cluster) Lines() string {
	type drawn struct {
		*nodeState
		*cpumap.Map
	}
	var rows []drawn
	for _, n := range c.nodes {
		if m, err := c.Map(n.Name); err == nil && len(c.ledger.View(n.Name).Holds()) > 0 {
			rows = append(rows, drawn{n, m})
		}
	}
	if len(rows) == 0 {
		return ""
	}
	return "\n" + table.Text([]table.Column[drawn]{
		{Name: "NODE", Text: func(r drawn) string { return r.Name }},
		{Name: "OPEN", Text: func(r drawn) string { return openText(c.openOf(r.nodeState)) }},
		{Name: "CORES", Text: func(r drawn) string { return r.Line() }},
	}, rows) + cpumap.LineLegend + "\n"
}

// Names returns the names of all nodes.
func (c *Cluster) Names() []string {
	var names []string
	for _, n := range c.nodes {
		names = append(names, n.Name)
	}
	return names
}
