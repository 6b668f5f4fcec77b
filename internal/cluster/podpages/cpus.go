package podpages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpumap"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/decide/cpus/pick"
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
	var owners []cpumap.Owner
	for _, o := range c.owners(n) {
		note := o.Why
		if hasSubject(o.Code) {
			note = o.Pod + " " + note
		}
		owners = append(owners, cpumap.Owner{Name: o.Pod, Hold: o.hold, Note: note})
	}
	var refused []cpumap.Refused
	for _, r := range c.refused(n) {
		refused = append(refused, cpumap.Refused{Name: r.Pod, Policy: r.policy, Why: after("it ", r.Why)})
	}
	of := cpumap.Node{
		Name: name, Topology: n.report.Topology, Reserved: n.report.Reserved, Keep: n.report.Keep, Manager: n.report.Manager,
		Reported: n.Report.Status.Reported.Time, Silent: n.IsSilent(c.now), Fault: n.AllReserved(), Refused: refused,
	}
	return cpumap.New(of, owners, c.now), nil
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

// A MapPage has the CPUs of a node, the pods that hold them, and those that got none.
type MapPage struct {
	Node     string    `json:"node"`
	Reported time.Time `json:"reported"`
	Made     time.Time `json:"made"`
	// Silent says that the report is so old that it may not be true any more.
	Silent   bool         `json:"silent,omitempty"`
	Fault    string       `json:"fault,omitempty"` // why no pod can own a CPU
	Manager  string       `json:"manager,omitempty"`
	Online   int          `json:"online"`
	Offline  string       `json:"offline,omitempty"`
	Open     int          `json:"open"`
	Keep     int          `json:"keep"`
	Reserved string       `json:"reserved,omitempty"`
	Caches   []Cache      `json:"caches"`
	CPUs     []cpumap.CPU `json:"cpus"`
	Owners   []Owner      `json:"owners"`
	Refused  []Refused    `json:"refused,omitempty"`
}

// A Cache is an L3 cache, or the part of it that is in one NUMA node.
type Cache struct {
	Socket int      `json:"socket"`
	NUMA   int      `json:"numa"`
	L3     int      `json:"l3"`
	CPUs   string   `json:"cpus"`
	Cores  []string `json:"cores"`
	Open   int      `json:"open"`
}

// An Owner is a pod that holds CPUs.
type Owner struct {
	Pod      string `json:"pod"`
	UID      string `json:"uid"`
	Policy   string `json:"policy"`
	CPUs     string `json:"cpus"`
	Domain   string `json:"domain,omitempty"`
	Where    string `json:"where,omitempty"`
	Request  string `json:"request,omitempty"`
	By       string `json:"by,omitempty"`
	Code     string `json:"code,omitempty"`
	Why      string `json:"why,omitempty"`
	Reported bool   `json:"reported"`

	hold cpus.Allocation
}

// A Refused is a pod that asks for CPUs and to which its node gave none.
type Refused struct {
	Pod    string `json:"pod"`
	UID    string `json:"uid"`
	Policy string `json:"policy"` // of the CPUs that it asks for
	Code   string `json:"code,omitempty"`
	Why    string `json:"why,omitempty"`

	policy cpus.Policy
}

// MapPage returns the same as Map, as data.
func (c *Cluster) MapPage(name string) (*MapPage, error) {
	n, err := c.reporting(name)
	if err != nil {
		return nil, err
	}
	drawn, err := c.Map(name)
	if err != nil {
		return nil, err
	}
	open := c.ledger.View(name).Open()
	page := &MapPage{
		Node: name, Reported: n.Report.Status.Reported.Time, Made: c.now, Silent: n.IsSilent(c.now), Fault: n.AllReserved(), Manager: n.report.Manager, Keep: n.report.Keep,
		Online: n.report.Topology.All().Len(), Offline: drawn.Offline().String(), Open: open.Len(), Reserved: n.report.Reserved.String(),
		CPUs: drawn.CPUs(), Owners: c.owners(n), Refused: c.refused(n),
	}
	m := c.ledger.View(name).Map()
	for _, k := range n.Report.Status.CPUs.Caches {
		set := setOf(k.CPUs)
		cache := Cache{Socket: int(k.Socket), NUMA: int(k.NUMA), L3: int(k.L3), CPUs: k.CPUs, Open: set.Intersect(open).Len()}
		for _, core := range pick.Cores(m) {
			if set.Contains(core) {
				cache.Cores = append(cache.Cores, core.String())
			}
		}
		page.Caches = append(page.Caches, cache)
	}
	return page, nil
}

// owners returns the pods that hold CPUs of a node.
func (c *Cluster) owners(n *nodeState) []Owner {
	names, reports := map[place.UID]string{}, map[place.UID]v1alpha1.HeldCPUs{}
	for i := range c.pods {
		names[uidOf(&c.pods[i])] = nameOf(&c.pods[i])
	}
	for _, h := range n.Report.Status.CPUs.Held {
		reports[place.UID(h.UID)] = h
	}
	all := []Owner{}
	for _, h := range c.ledger.View(n.Name).Holds() {
		report, reported := reports[h.UID]
		o := Owner{
			Pod: cmp.Or(names[h.UID], string(h.UID)), UID: string(h.UID), Policy: h.Hold.Policy.String(), CPUs: h.Hold.CPUs.String(), Domain: h.Hold.Domain.String(),
			By: report.By, Code: report.Code, Why: report.Why, Reported: reported, hold: h.Hold,
		}
		if !reported {
			o.Why = "not reported by the node yet"
		}
		if h.Hold.Policy != cpus.Exclusive {
			o.Request, o.Where = h.Hold.CPU.String(), c.ledger.View(n.Name).Map().LevelOf(h.Hold.Domain).One()
		}
		all = append(all, o)
	}
	return all
}

// refused returns the pods of a node that ask for CPUs and to which the node
// gave none. It leaves out pods that have ended since the report.
func (c *Cluster) refused(n *nodeState) []Refused {
	of := map[place.UID]v1alpha1.RefusedCPUs{}
	for _, r := range n.Report.Status.CPUs.Refused {
		of[place.UID(r.UID)] = r
	}
	var all []Refused
	for i := range c.pods {
		p := &c.pods[i]
		r, is := of[uidOf(p)]
		demand := demandOf(stored.InForce(p))
		if !is || demand == nil || p.Spec.NodeName != n.Name || kube.HasEnded(p) {
			continue
		}
		all = append(all, Refused{Pod: nameOf(p), UID: string(uidOf(p)), Policy: demand.Policy.String(), Code: r.Code, Why: r.Why, policy: demand.Policy})
	}
	slices.SortFunc(all, func(a, b Refused) int { return strings.Compare(a.Pod, b.Pod) })
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
