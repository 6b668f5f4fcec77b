package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// oldReport is the age from which a report is too old to count. tenond writes a
// report at least once a minute.
const oldReport = 3 * time.Minute

// nodeCPUs are the CPUs that a node gives to pods as their own or as pools.
type nodeCPUs struct {
	open  unit.CPUSet   // those that are not reserved
	owned unit.CPUSet   // those that pods own already
	keep  int           // number of CPUs that stay shared
	pools []unit.CPUSet // the parts of the L3 caches in each NUMA node
	why   string        // reason why the node gives no CPUs to pods; empty: it gives some
}

// readCPUs reads which CPUs the node gives to pods.
func readCPUs(ctx context.Context, k kubectl.Client, node string) (nodeCPUs, error) {
	var c nodeCPUs
	r, err := nodes.ReportOf(ctx, k, node)
	if err != nil || r.Status.CPUs == nil {
		if ctx.Err() != nil {
			return c, ctx.Err()
		}
		c.why = fmt.Sprintf("tenond does not report the CPUs of node %s: see docs/cpus.md", node)
		return c, nil
	}
	if m := r.Status.CPUs.Manager; m != "" {
		c.why = fmt.Sprintf("%s writes the CPUs of the pods of node %s", m, node)
		return c, nil
	}
	if age := time.Since(r.Status.Reported); !r.Status.Reported.IsZero() && age > oldReport {
		c.why = fmt.Sprintf("the last report of tenond on node %s is %v old", node, age.Round(time.Second))
		return c, nil
	}
	for _, cache := range r.Status.CPUs.Caches {
		c.open = c.open.Union(cache.CPUs.Minus(r.Status.CPUs.Reserved))
		c.pools = append(c.pools, cache.CPUs)
	}
	for _, h := range r.Status.CPUs.Pods {
		if h.Policy == cpus.Exclusive {
			c.owned = c.owned.Union(h.CPUs)
		}
	}
	c.keep = r.Status.CPUs.Keep
	return c, nil
}

// heldPatience is the longest time until tenond reports which CPUs a new pod has.
// After an error of the API server, tenond waits 30 s before its next report.
const heldPatience = 40 * time.Second

// A holding describes which CPUs the pods of a run have according to tenond.
type holding struct {
	all unit.CPUSet // of all of them
	why string      // why the pods do not have what their mode gives; empty: they have it
}

// awaitHeld waits until tenond reports that all given pods have the CPUs that
// their mode gives them. After heldPatience it returns what is missing.
func (b *pods) awaitHeld(ctx context.Context, m pinning.Mode, limit int, uids []string) (holding, error) {
	for deadline := time.Now().Add(heldPatience); ; {
		h, err := b.held(ctx, m, limit, uids)
		if err != nil || h.why == "" || time.Now().After(deadline) {
			return h, err
		}
		if err := testbed.Pause(ctx, 500*time.Millisecond); err != nil {
			return h, err
		}
	}
}

// held compares the report of tenond with a mode. A mode gives each pod own
// CPUs (as many as its limit), or a pool. The shared modes give a pod neither.
func (b *pods) held(ctx context.Context, m pinning.Mode, limit int, uids []string) (h holding, err error) {
	r, err := nodes.ReportOf(ctx, b.space.Client, b.node.Name)
	if err != nil {
		return h, err
	}
	if r.Status.CPUs == nil {
		return h, errors.New("tenond no longer reports the CPUs of node " + b.node.Name)
	}
	for _, uid := range uids {
		var has cpus.Allocation
		why := ""
		for _, p := range r.Status.CPUs.Pods {
			switch {
			case p.UID != uid:
			case p.CPUs.Empty():
				why = ": " + p.Why
			default:
				has = p.Allocation
			}
		}
		switch {
		case !givesCPUs(m) && has.Policy == 0:
		case !givesCPUs(m):
			h.why = fmt.Sprintf("tenond gave a pod CPUs %v (%s), although the mode does not ask for any", has.CPUs, has.Policy)
		case has.Policy == 0:
			h.why = "a pod has no CPUs of its own" + why
		case m == pinning.StaticBurst && has.Policy != cpus.Pool, m != pinning.StaticBurst && has.Policy != cpus.Exclusive:
			h.why = fmt.Sprintf("a pod has CPUs %v as %s", has.CPUs, has.Policy)
		case m != pinning.StaticBurst && (has.CPUs.Len() != limit || !has.CPUs.Intersect(h.all).Empty()):
			h.why = fmt.Sprintf("a pod has CPUs %v, not %d that no other pod has", has.CPUs, limit)
		}
		h.all = h.all.Union(has.CPUs)
	}
	return h, nil
}
