package survey

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"tenon.sh/tenon/internal/cluster/cpumap"
	"tenon.sh/tenon/internal/decide/place"
)

// Map returns the map of the CPUs of a node, or an error that says why there is
// none.
func (c *Cluster) Map(name string) (*cpumap.Map, error) {
	n := c.node(name)
	if n == nil {
		return nil, fmt.Errorf("there is no node %q", name)
	}
	if !n.reported {
		return nil, fmt.Errorf("node %s: %s", name, cmp.Or(n.age, string(place.NoReport)))
	}
	notes := map[place.UID]string{}
	for _, h := range n.Report.Status.CPUs.Held {
		notes[place.UID(h.UID)] = cmp.Or(h.Why, "")
	}
	names := map[place.UID]string{}
	for i := range c.pods {
		names[place.UID(c.pods[i].UID)] = nameOf(&c.pods[i])
	}
	var owners []cpumap.Owner
	for _, h := range c.ledger.View(name).Holds() {
		note, reported := notes[h.UID]
		if !reported {
			note = "not reported by the node yet"
		}
		owners = append(owners, cpumap.Owner{Name: cmp.Or(names[h.UID], string(h.UID)), Hold: h.Hold, Note: note})
	}
	state := "reported " + n.age
	if n.report.Manager != "" {
		state += "; another manager binds CPUs on this node: " + n.report.Manager
	}
	return cpumap.New(name, state, n.report.Topology, n.report.Reserved, n.report.Keep, owners), nil
}

// Lines prints a one-line map of each node on which pods hold CPUs. It returns
// "" if there is no such node.
func (c *Cluster) Lines() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, n := range c.nodes {
		m, err := c.Map(n.Name)
		if err != nil || len(c.ledger.View(n.Name).Holds()) == 0 {
			continue
		}
		if b.Len() == 0 {
			fmt.Fprintln(&b)
			fmt.Fprintln(w, "NODE\tOPEN\tCORES")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", n.Name, c.openOf(n), m.Line())
	}
	w.Flush() // writes to memory and cannot fail
	if b.Len() > 0 {
		fmt.Fprintln(&b, cpumap.LineLegend)
	}
	return b.String()
}

// Names returns the names of all nodes.
func (c *Cluster) Names() []string {
	var names []string
	for _, n := range c.nodes {
		names = append(names, n.Name)
	}
	return names
}
