package daemon

import (
	"context"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/agent/scrape"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/shadow"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/launch"
	"tenon.sh/tenon/internal/model/node"
)

// followConfig reads the configuration again if it has changed, and applies it.
// An invalid file has no effect.
func (d *daemon) followConfig() {
	if d.cluster != nil && d.cluster.FollowConfig() {
		d.takeConfig()
	}
	if d.cluster != nil {
		d.health.Set(health.Config, "cluster", d.cluster.ConfigMissing())
	}
	d.file.Look()
	d.health.Set(health.Config, "read", d.file.Hangs())
	r := d.file.Take()
	if r == nil {
		return
	}
	if r.Err != nil {
		refused := fmt.Sprintf("the new configuration %s is refused; the old one stays in force: %v", d.Config, r.Err)
		if !d.health.Set(health.Config, "refused", refused) {
			d.Log.Error(refused)
		}
		return
	}
	d.health.Set(health.Config, "refused", "")
	d.setConfig(r.Config)
	d.takeConfig()
	d.Log.Info("configuration read", "config", d.Config, "rules", len(d.config.Rules))
}

// takeConfig applies the configuration.
func (d *daemon) takeConfig() {
	c := d.config
	if d.cluster != nil {
		c = d.cluster.MergeOver(c)
	}
	d.agent.Config, d.agent.Period = c.Policy, c.Period
	if d.Observe {
		d.agent.Config = shadow.Config(c.Policy)
		c.Signals.Pressure = false // a trigger is a write
	}
	d.signals.use(c.Signals)
	d.containers.Use(c.Rules, c.ContainerSockets)
	d.rematch = true
	for _, n := range c.Notices {
		d.Log.Warn("configuration: " + n)
	}
}

// rules returns the rules of the cluster for programs outside Kubernetes, and
// after these the rules of the file.
func (d *daemon) rules() []match.Rule {
	own := d.config.Rules
	if d.cluster == nil {
		return own
	}
	return append(d.cluster.Rules(), own...)
}

// followGroups applies the rules to the existing cgroups. It does so only if
// the rules or the cgroups have changed.
func (d *daemon) followGroups() {
	whole := d.rematch
	if changed := d.changed.Swap(false); !changed && !whole {
		return
	}
	d.rematch = false
	came := d.watcher.Changes()
	d.conflicts.forget(came)
	paths := d.watcher.Groups()
	d.containers.See(paths)
	containers, trouble := d.containers.Groups(paths)
	workloads, remarks := launch.Workloads(d.rules(), match.Groups(paths, containers, d.tree.Direct))
	remarks = append(remarks, trouble...)
	if err := d.watcher.DegradedReason(); err != nil {
		remarks = append(remarks, err.Error())
	}
	for _, passed := range d.tree.PassedOver {
		remarks = append(remarks, passed.Error())
	}
	if err := d.watcher.Missed().OrNil(); err != nil {
		remarks = append(remarks, err.Error()+"; tenond manages nothing in them")
	}
	workloads = slices.DeleteFunc(workloads, func(w node.Workload) bool {
		if !w.Cgroup.Contains(d.home) {
			return false
		}
		remarks = append(remarks, fmt.Sprintf("rule %q takes %s, in which tenond itself runs; tenond does not manage it", w.Rule, w.Cgroup))
		return true
	})
	for i := range workloads {
		w := &workloads[i]
		w.ContentionRoot = rootBeside(w.ContentionRoot, w.Cgroup, d.home)
	}
	if d.cluster != nil {
		var more []string
		workloads, more = d.cluster.Workloads(paths, workloads, d.home, d.host.Rebase)
		remarks = append(remarks, more...)
	}
	d.reporter.workloads(workloads, remarks)
	d.requests.Follow(d.targets(workloads))
	if !whole && d.hasAll(workloads, came) {
		return
	}
	d.followed = nil
	d.host.ManageOnly(workloads)
	d.signals.follow(workloads)
	d.host.Show(policy.Files(d.agent.Config, workloads))
	again, err := d.host.Sweep(paths)
	if d.rematch = again; err != nil {
		d.Log.Warn("cannot follow all cgroups that came or went in the journal", "error", err)
		return
	}
	d.followed = workloads
}

// targets returns the services whose requests are read. The metrics of a service of
// a rule are read at this node.
func (d *daemon) targets(workloads []node.Workload) (all []scrape.Target) {
	for i := range workloads {
		w := &workloads[i]
		if !w.Objective.Requests.Stated() || !w.Class.Sensitive() {
			continue
		}
		t := scrape.Target{Workload: w.ID, Address: "127.0.0.1", Want: w.Objective.Requests}
		if w.Pod && d.cluster != nil {
			t.Address, t.Trouble = d.cluster.Metrics(w.ID)
		}
		if t.Want.Source == node.SourceSocket {
			var err error
			if t.Cgroup, err = d.host.Inode(w.Cgroup); err != nil {
				continue // it has just gone
			}
			if t.Address = ""; !d.config.Signals.Requests {
				t.Trouble = node.TroubleOff
			}
		}
		all = append(all, t)
	}
	return all
}

// rootBeside returns the highest cgroup from group up to root that does not
// contain home. It returns "" if root is "". A weight or limit at a cgroup that
// contains home would apply to tenond itself.
func rootBeside(root, group, home node.CgroupPath) node.CgroupPath {
	if root == "" || !root.Contains(home) {
		return root
	}
	for {
		p := group.Parent()
		if p == "" || !root.Contains(p) || p.Contains(home) {
			return group
		}
		group = p
	}
}

// hasAll reports whether the host already has these workloads, and manages none
// of the cgroups that came or went (came). Then the host needs no full update.
// A full update is expensive on a node with thousands of workloads, and cgroups
// of the system come and go often.
func (d *daemon) hasAll(workloads []node.Workload, came []string) bool {
	if len(workloads) != len(d.followed) {
		return false
	}
	for i := range workloads {
		if !record.EqualButUse(&workloads[i], &d.followed[i]) {
			return false
		}
	}
	concerned, err := host.Concerns(d.host, came)
	return err == nil && !concerned
}

// Order returns the order in which the agent performs the steps of a tick.
func (d *daemon) Order(steps []plan.Step) []int { return d.guard.order(steps) }

// Apply performs one step on the node.
func (d *daemon) Apply(ctx context.Context, s plan.Step) error {
	return d.guard.during(s, func() error {
		if d.cluster != nil {
			if taken, err := d.cluster.Evict(s); taken {
				return err
			}
		}
		err := d.host.Apply(ctx, s)
		if err == nil {
			d.conflicts.note(s, host.StoredValue(d.host, s))
		}
		return err
	})
}

// ApplyAll performs the first steps on the node, as many as host.BatchLength
// allows. The caller calls it again for the others. If thousands of cgroups
// appear at once, the steps take longer than a tick. So ApplyAll extends the
// lease after each batch. Otherwise the watchdog would treat the loop as dead.
func (d *daemon) ApplyAll(ctx context.Context, steps []plan.Step) []error {
	n := host.BatchLength(steps)
	if n == 1 {
		return []error{d.Apply(ctx, steps[0])}
	}
	d.guard.allow(hungAfter)
	errs := host.ApplyAll(ctx, d.host, steps[:n])
	for i, err := range errs {
		if err == nil {
			d.conflicts.note(steps[i], host.StoredValue(d.host, steps[i]))
		}
	}
	return errs
}

// Guard does the host's work between two snapshots that is not a step of a plan.
func (d *daemon) Guard() error { return d.host.Guard() }

// Reclaim hands the orders of a tick to the goroutine that carries them out. It is a
// method of loop.Reclaimer.
func (d *daemon) Reclaim(orders []node.ReclaimOrder, mayRun func(node.WorkloadID) bool) {
	d.host.Reclaims().Ask(orders, mayRun)
}
