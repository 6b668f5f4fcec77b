package daemon

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/unit"
)

// A clusterConfig is what the cluster asks of this node.
type clusterConfig struct {
	last   config.Cluster // with what held of each key before it got a fault
	read   bool           // last is of kept.Config at least
	node   config.NodeConfig
	spaces kube.Namespaces // what namespaces ask for their pods
	facts  kubelet.Facts   // by which this was made
	// missing is since when the ConfigMap is not there, and missingByspace the one
	// with what namespaces ask for: while it is waited for, what it said last holds.
	missing, missingByspace config.Missing
	status                  nodereport.Config
}

// followConfig takes the ConfigMap, and the labels and annotations of the node,
// if any has changed, and reports whether the configuration may be another.
func (c *cluster) followConfig() bool { return c.followConfigAt(time.Now()) }

func (c *cluster) followConfigAt(now time.Time) bool {
	k := &c.kept
	facts := c.pods.Known().Facts
	if facts == (kubelet.Facts{}) {
		facts = k.Facts
	}
	stale := c.stale.Swap(false) || c.cfg.missing.Due(now) || c.cfg.missingByspace.Due(now)
	if !stale && facts == c.cfg.facts {
		return false
	}
	c.cfg.facts = facts
	if !c.cfg.read {
		// What held when the last daemon ended is what a key with a fault keeps.
		c.cfg.last, _ = config.ParseConfigMap(k.Config)
		c.cfg.read = true
	}
	var faults []config.Fault
	found, mapKnown := c.configs.Objects()
	if mapKnown && !waits(&c.cfg.missing, len(found) > 0, k.HasConfig, now) {
		var data map[string]string
		if k.HasConfig = len(found) > 0; k.HasConfig {
			data = found[0].Data
		}
		c.cfg.last, faults = config.ParseConfigMapOver(c.cfg.last, data)
		k.Config = c.cfg.last.Data()
	}
	if found, known := c.byspace.Objects(); known && !waits(&c.cfg.missingByspace, len(found) > 0, len(k.ByNamespace) > 0, now) {
		k.ByNamespace = nil
		if len(found) > 0 {
			k.ByNamespace = found[0].Data
		}
	}
	spaces, wrong := kube.ParseNamespaces(k.ByNamespace)
	c.cfg.spaces = spaces
	for _, f := range wrong {
		f.Key = "ConfigMap " + kube.PodConfigMap + ": " + f.Key
		faults = append(faults, config.Fault{Field: f.Key, Problem: f.Fault.String()})
	}
	nodes, nodeKnown := c.self.Objects()
	if nodeKnown && len(nodes) > 0 {
		k.Labels, k.Annotations, k.UID = nodes[0].Labels, nodes[0].Annotations, nodes[0].UID
	}
	k.ConfigKnown = k.ConfigKnown || mapKnown && nodeKnown
	var own []config.Fault
	c.cfg.node, own = c.cfg.last.Node(k.Labels, k.Annotations)
	c.cfg.node.Notices = append(c.cfg.node.Notices, shareCPUs(&c.cfg.node.Policy, facts)...)
	c.tellConfig(append(faults, own...))
	c.keep()
	return true
}

// waits reports whether a ConfigMap that was there and is not is waited for, so
// that what it said last holds.
func waits(m *config.Missing, there, was bool, now time.Time) bool {
	return m.See(there || !was, now) > 0
}

// tellConfig makes the status of the configuration, and logs what is new in it.
func (c *cluster) tellConfig(faults []config.Fault) {
	name := fmt.Sprintf("ConfigMap %s/%s", c.Namespace, c.ConfigMap)
	if !c.kept.HasConfig {
		name += ", which does not exist"
	}
	next := nodereport.Config{From: name, Notices: slices.Concat(c.cfg.last.Notices(), c.cfg.node.Notices)}
	for _, m := range []struct {
		name    string
		missing config.Missing
	}{{name, c.cfg.missing}, {"ConfigMap " + kube.PodConfigMap, c.cfg.missingByspace}} {
		if since := m.missing.Since(); !since.IsZero() {
			next.Notices = append(next.Notices, fmt.Sprintf("%s does not exist since %s: what it said last holds until %s",
				m.name, since.Format(time.TimeOnly), since.Add(config.GoneAfter).Format(time.TimeOnly)))
		}
	}
	for _, f := range faults {
		next.Faults = append(next.Faults, f.String())
	}
	if !slices.Equal(next.Faults, c.cfg.status.Faults) {
		for _, f := range next.Faults {
			c.log.Error("the configuration of the cluster has a fault; the values from before hold", "from", name, "fault", f)
		}
		if len(next.Faults) == 0 {
			c.log.Info("the configuration of the cluster has no faults any more", "from", name)
		}
	}
	if !slices.Equal(next.Notices, c.cfg.status.Notices) {
		for _, n := range next.Notices {
			c.log.Warn("configuration: "+n, "from", name)
		}
	}
	if len(c.cfg.node.Chosen) > 0 {
		c.log.Info("entries for this node hold", "entries", c.cfg.node.Chosen)
	}
	c.cfg.status = next
}

// configTrouble says why the configuration is not read any more; empty: it is.
func (c *cluster) configTrouble() string {
	_, err := c.configs.Trouble()
	if err == nil {
		_, err = c.self.Trouble()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// over puts what the cluster asks for over the configuration of the file, which
// is that of the node: its parts, its rules, how it is looked at. Where there is
// no ConfigMap the strategies of the file hold.
func (c *cluster) over(file config.Config) config.Config {
	if !c.kept.HasConfig {
		shareCPUs(&file.Policy, c.cfg.facts)
		return file
	}
	next, own := file, file.Policy
	next.Policy = c.cfg.node.Policy
	next.Policy.Pool.CPUs, next.Policy.Cache.Peak = own.Pool.CPUs, own.Cache.Peak
	reserve := &next.Policy.Overcommit
	reserve.ReservedCPU = max(reserve.ReservedCPU, own.Overcommit.ReservedCPU)
	reserve.ReservedMemory = max(reserve.ReservedMemory, own.Overcommit.ReservedMemory)
	return next
}

// shareCPUs leaves the sets of CPUs to a kubelet that writes them itself, and
// those CPUs on which it lets no pod run out of what pods share. The notices say
// which CPUs are to be kept from best-effort work and are not.
func shareCPUs(p *policy.Config, f kubelet.Facts) (notices []string) {
	if !binds(f) {
		return nil
	}
	p.Pool.SetsKept, p.CPUQOS.SetsKept = true, true
	strict, err := unit.ParseCPUSet(f.ReservedCPUs)
	if err != nil { // the kubelet itself would not have started
		notices = append(notices, fmt.Sprintf("the kubelet's reservedSystemCPUs cannot be read: %v", err))
	}
	if open := p.Pool.ReservedCPUs.Minus(strict); !open.Empty() {
		notices = append(notices, fmt.Sprintf("CPUs %v are reserved, and best-effort work may run there: the kubelet binds CPUs here (cpuManagerPolicy: static), so a quota is all that bounds it; "+
			"the kubelet's reservedSystemCPUs with strict-cpu-reservation keeps pods off", open))
	}
	p.Pool.ReservedCPUs = p.Pool.ReservedCPUs.Union(strict)
	return notices
}
