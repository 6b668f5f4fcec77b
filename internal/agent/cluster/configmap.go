package cluster

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A nodeConfig is the configuration that a node gets from the cluster.
type nodeConfig struct {
	last   config.Cluster // the last valid configuration; its values replace keys with faults
	read   bool           // the configuration that the last daemon saved has been read into last
	node   config.NodeConfig
	spaces kube.Namespaces // overrides that namespaces set for their pods
	facts  kubelet.Facts   // the facts of the kubelet that this configuration used
	// missing measures how long the ConfigMap has been absent, and
	// missingPodConfig does the same for kube.PodConfigMap. After a deletion, the
	// last content stays in force for a while.
	missing, missingPodConfig config.Missing
	status                    nodereport.Config
}

// FollowConfig reads the ConfigMap, and the node's labels and annotations, if
// they have changed. It reports whether the configuration may have changed.
func (c *Follower) FollowConfig() bool { return c.followConfigAt(time.Now()) }

func (c *Follower) followConfigAt(now time.Time) bool {
	k := &c.last
	facts := c.pods.Known().Facts
	if facts == (kubelet.Facts{}) {
		facts = k.Facts
	}
	stale := c.stale.Swap(false) || c.cfg.missing.Due(now) || c.cfg.missingPodConfig.Due(now)
	if !stale && facts == c.cfg.facts {
		return false
	}
	c.cfg.facts = facts
	if !c.cfg.read {
		// If a key has a fault, its value from the last daemon stays in force.
		c.cfg.last, _ = config.ParseConfigMap(k.Config)
		c.cfg.read = true
	}
	var faults []config.Fault
	found, mapKnown := c.configs.Objects()
	if mapKnown && !staysInForce(&c.cfg.missing, len(found) > 0, k.HasConfig, now) {
		var data map[string]string
		k.LostConfig = len(found) == 0 && (k.HasConfig || k.LostConfig)
		if k.HasConfig = len(found) > 0; k.HasConfig {
			data = found[0].Data
		}
		c.cfg.last, faults = config.ParseConfigMapOver(c.cfg.last, data)
		k.Config = c.cfg.last.Data()
	}
	byspace, spacesKnown := c.podConfigs()
	if data := joinNamespaces(byspace, c.Namespace); spacesKnown && !staysInForce(&c.cfg.missingPodConfig, len(data) > 0, len(k.ByNamespace) > 0, now) {
		k.ByNamespace = data
	}
	spaces, wrong := kube.ParseNamespaces(k.ByNamespace)
	c.cfg.spaces = spaces
	var inert, ignored []string
	for _, f := range wrong {
		f.Key = "ConfigMap " + kube.PodConfigMap + ": " + f.Key
		if f.Inert {
			inert = append(inert, f.String())
			continue
		}
		ignored = append(ignored, f.String()+"; the key counts as missing")
	}
	nodes, nodeKnown := c.self.Objects()
	if nodeKnown && len(nodes) > 0 {
		k.Labels, k.Annotations, k.UID = nodes[0].Labels, nodes[0].Annotations, nodes[0].UID
		k.KubeletReserve = kube.Reserve(nodes[0])
	}
	k.ConfigKnown = k.ConfigKnown || mapKnown && nodeKnown
	var own []config.Fault
	c.cfg.node, own = c.cfg.last.Node(k.Labels, k.Annotations)
	c.cfg.node.Notices = append(c.cfg.node.Notices, inert...)
	c.cfg.node.Notices = append(c.cfg.node.Notices, shareCPUs(&c.cfg.node.Policy, facts)...)
	c.cfg.node.Notices = append(c.cfg.node.Notices, leaveProtection(&c.cfg.node.Policy, facts)...)
	c.cfg.node.Policy.NodeCPUs = c.cfg.node.Policy.NodeCPUs.Keeping(k.KubeletReserve, c.cfg.node.Policy.Suppress.Enable)
	for _, f := range own {
		ignored = append(ignored, nodereport.Ignored(f.String()))
	}
	c.tellConfig(faults, ignored)
	c.keep()
	return true
}

// podConfigs returns the ConfigMaps named kube.PodConfigMap. known is false until
// the API server has answered for all namespaces that count.
func (c *Follower) podConfigs() (found []*corev1.ConfigMap, known bool) {
	known = true
	for _, w := range c.byspace {
		here, answered := w.Objects()
		found, known = append(found, here...), known && answered
	}
	return found, known
}

// staysInForce reports whether the last content of a deleted ConfigMap still
// applies, because the deletion was only a short time ago.
func staysInForce(m *config.Missing, there, was bool, now time.Time) bool {
	return m.See(there || !was, now) > 0
}

// tellConfig updates the status of the configuration, and logs changes of it.
func (c *Follower) tellConfig(faults []config.Fault, ignored []string) {
	name := fmt.Sprintf("ConfigMap %s/%s", c.Namespace, c.ConfigMap)
	next := nodereport.Config{
		From: name, Ignored: ignored, Unlikely: len(c.cfg.node.Unlikely) > 0, Missing: c.missingConfig(),
		Notices: slices.Concat(c.cfg.node.Unlikely, c.cfg.last.Notices(), c.cfg.node.Notices),
	}
	if since := c.cfg.missingPodConfig.Since(); !since.IsZero() {
		next.Notices = append(next.Notices, fmt.Sprintf("ConfigMap %s does not exist since %s: its last content holds until %s",
			kube.PodConfigMap, since.Format(time.TimeOnly), since.Add(config.GoneAfter).Format(time.TimeOnly)))
	}
	if next.Missing != c.cfg.status.Missing {
		c.tellMissing(name, next.Missing)
	}
	for _, f := range faults {
		next.Faults = append(next.Faults, f.String())
	}
	if !slices.Equal(next.Faults, c.cfg.status.Faults) {
		for _, f := range next.Faults {
			c.log.Error("the configuration of the cluster has a fault; the last valid values hold", "from", name, "fault", f)
		}
		if len(next.Faults) == 0 {
			c.log.Info("the configuration of the cluster has no faults any more", "from", name)
		}
	}
	if !slices.Equal(next.Ignored, c.cfg.status.Ignored) {
		for _, f := range next.Ignored {
			c.log.Error("configuration: " + f)
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

// missingConfig says whether the ConfigMap does not exist.
func (c *Follower) missingConfig() nodereport.Missing {
	if since := c.cfg.missing.Since(); !since.IsZero() {
		return nodereport.Missing{Is: true, Lost: true, Since: since, Until: since.Add(config.GoneAfter)}
	}
	return nodereport.Missing{Is: c.last.ConfigKnown && !c.last.HasConfig, Lost: c.last.LostConfig}
}

// tellMissing logs that the ConfigMap is missing, or exists again.
func (c *Follower) tellMissing(name string, m nodereport.Missing) {
	switch {
	case !m.Is:
		c.log.Info("the ConfigMap exists again", "config", name)
	case !m.Until.IsZero():
		c.log.Error("the ConfigMap does not exist: its last content holds for a while, and then the file of tenond", "config", name, "until", m.Until)
	default:
		c.log.Error("the ConfigMap does not exist: the file of tenond holds", "config", name)
	}
}

// ConfigMissing says that the ConfigMap was deleted, or returns "".
func (c *Follower) ConfigMissing() string {
	if m := c.cfg.status.Missing; m.Is && m.Lost {
		return c.cfg.status.From + " was deleted"
	}
	return ""
}

// configTrouble returns the reason why the cluster's configuration cannot be read, or "".
func (c *Follower) configTrouble() string {
	_, err := c.configs.Trouble()
	if err == nil {
		_, err = c.self.Trouble()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// MergeOver replaces values of the configuration file by values of the
// cluster's configuration. Containers, rules and intervals always come from the
// file. Without a ConfigMap, everything comes from the file.
func (c *Follower) MergeOver(file config.Config) config.Config {
	if !c.last.HasConfig {
		shareCPUs(&file.Policy, c.cfg.facts)
		leaveProtection(&file.Policy, c.cfg.facts)
		return file
	}
	next, own := file, file.Policy
	next.Policy = c.cfg.node.Policy
	next.Policy.NodeCPUs.CPUs, next.Policy.Cache.Peak = own.NodeCPUs.CPUs, own.Cache.Peak
	reserve := &next.Policy.Overcommit
	reserve.ReservedCPU = max(reserve.ReservedCPU, own.Overcommit.ReservedCPU)
	reserve.ReservedMemory = max(reserve.ReservedMemory, own.Overcommit.ReservedMemory)
	return next
}

// leaveProtection changes the configuration if the kubelet protects the memory of pods.
// Tenon then protects none of services, because each would overwrite the other. A notice
// names what has no effect by that.
func leaveProtection(p *policy.Config, f kubelet.Facts) (notices []string) {
	if f.MemoryReservationPolicy != kubelet.TieredReservation {
		return nil
	}
	p.Memory.ProtectedExternally = true
	for _, class := range node.Classes {
		if shares := p.Memory.Classes[class]; class.Sensitive() && (shares.MinPercent > 0 || shares.LowPercent > 0) {
			notices = append(notices, fmt.Sprintf("minLimitPercent and lowLimitPercent of memoryQOS have no effect on pods of class %s: %s", class, memory.KubeletProtects))
		}
	}
	return notices
}

// shareCPUs changes the configuration if the kubelet or a driver writes cpusets.
// Tenon then writes none, and keeps the CPUs that the kubelet reserves out of the
// shared CPUs. The notices name reserved CPUs that best-effort work can still use.
func shareCPUs(p *policy.Config, f kubelet.Facts) (notices []string) {
	_, why := binder(f)
	if why == "" {
		return nil
	}
	p.NodeCPUs.CPUSetsManagedExternally, p.CPUQOS.CPUSetsManagedExternally = true, true
	strict, err := unit.ParseCPUSet(f.ReservedCPUs)
	if err != nil { // a kubelet with such a value does not start
		notices = append(notices, fmt.Sprintf("the kubelet's reservedSystemCPUs cannot be read: %v", err))
	}
	if open := p.NodeCPUs.ReservedCPUs.Minus(strict); !open.Empty() {
		notices = append(notices, fmt.Sprintf("CPUs %v are reserved, and best-effort work may run there: %s, so a quota is all that bounds it; "+
			"the kubelet's reservedSystemCPUs with strict-cpu-reservation keeps pods off", open, why))
	}
	p.NodeCPUs.ReservedCPUs = p.NodeCPUs.ReservedCPUs.Union(strict)
	return notices
}
