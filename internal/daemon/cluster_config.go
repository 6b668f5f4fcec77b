package daemon

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/kube"
	"tenon.sh/tenon/internal/report"
)

// A clusterConfig is what the cluster asks of this node.
type clusterConfig struct {
	last   config.Cluster // with what held of each key before it got a fault
	read   bool           // last is of kept.Config at least
	node   config.NodeConfig
	spaces kube.Namespaces // what namespaces ask for their pods
	status report.Config
}

// followConfig takes the ConfigMap, and the labels and annotations of the node,
// if any has changed, and reports whether the configuration may be another.
func (c *cluster) followConfig() bool {
	if !c.stale.Swap(false) {
		return false
	}
	k := &c.kept
	if !c.cfg.read {
		// What held when the last daemon ended is what a key with a fault keeps.
		c.cfg.last, _ = config.ParseConfigMap(k.Config)
		c.cfg.read = true
	}
	var faults []config.Fault
	found, mapKnown := c.configs.Objects()
	if mapKnown {
		var data map[string]string
		if k.HasConfig = len(found) > 0; k.HasConfig {
			data = found[0].Data
		}
		c.cfg.last, faults = config.ParseConfigMapOver(c.cfg.last, data)
		k.Config = c.cfg.last.Data()
	}
	if found, known := c.byspace.Objects(); known {
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
	c.tellConfig(append(faults, own...))
	c.keep()
	return true
}

// tellConfig makes the status of the configuration, and logs what is new in it.
func (c *cluster) tellConfig(faults []config.Fault) {
	name := fmt.Sprintf("ConfigMap %s/%s", c.Namespace, c.ConfigMap)
	if !c.kept.HasConfig {
		name += ", which does not exist"
	}
	next := report.Config{From: name, Notices: slices.Concat(c.cfg.last.Notices(), c.cfg.node.Notices)}
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
		return file
	}
	next, own := file, file.Policy
	next.Policy = c.cfg.node.Policy
	next.Policy.Suppress.CPUs, next.Policy.Cache.Peak = own.Suppress.CPUs, own.Cache.Peak
	reserve := &next.Policy.Overcommit
	reserve.CPUs = own.Suppress.CPUs
	reserve.ReservedCPU = max(reserve.ReservedCPU, own.Overcommit.ReservedCPU)
	reserve.ReservedMemory = max(reserve.ReservedMemory, own.Overcommit.ReservedMemory)
	return next
}
