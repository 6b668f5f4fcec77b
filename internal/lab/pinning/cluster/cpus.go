package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/model/unit"
)

// A nodeReport is the part of tenond's report that the lab reads.
type nodeReport struct {
	Status struct {
		CPUs *struct {
			Caches            []struct{ CPUs string }
			Reserved, Manager string
			Keep              int
			Held              []struct{ UID, CPUs string }
			Refused           []struct{ UID, Why string }
		} `json:"cpus"`
	}
}

// nodeCPUs are the CPUs that a node gives to pods as their own or as pools.
type nodeCPUs struct {
	open  unit.CPUSet   // those that are not reserved
	keep  int           // number of CPUs that stay shared
	pools []unit.CPUSet // the parts of the L3 caches in each NUMA node
	why   string        // reason why the node gives no CPUs to pods; empty: it gives some
}

// readCPUs reads which CPUs the node gives to pods.
func readCPUs(ctx context.Context, k kubectl.Client, node string) (nodeCPUs, error) {
	var c nodeCPUs
	var r nodeReport
	if err := k.Get(ctx, &r, "nodereports.tenon.sh", node); err != nil || r.Status.CPUs == nil {
		if ctx.Err() != nil {
			return c, ctx.Err()
		}
		c.why = fmt.Sprintf("tenond does not report the CPUs of node %s: see docs/scheduling.md", node)
		return c, nil
	}
	if m := r.Status.CPUs.Manager; m != "" {
		c.why = fmt.Sprintf("%s writes the CPUs of the pods of node %s", m, node)
		return c, nil
	}
	reserved, err := unit.ParseCPUSet(r.Status.CPUs.Reserved)
	if err != nil {
		return c, fmt.Errorf("reserved CPUs of node %s: %w", node, err)
	}
	for _, cache := range r.Status.CPUs.Caches {
		cpus, err := unit.ParseCPUSet(cache.CPUs)
		if err != nil {
			return c, fmt.Errorf("CPUs of node %s: %w", node, err)
		}
		c.open = c.open.Union(cpus.Minus(reserved))
		c.pools = append(c.pools, cpus)
	}
	c.keep = r.Status.CPUs.Keep
	return c, nil
}

// heldPatience is the longest time until tenond reports which CPUs a new pod has.
const heldPatience = 20 * time.Second

// held waits until tenond reports CPUs of all given pods, and returns all of
// them. If tenond reports a pod without CPUs, held returns the reason (why).
func (b *bench) held(ctx context.Context, uids []string) (all unit.CPUSet, why string, err error) {
	for deadline := time.Now().Add(heldPatience); ; {
		var r nodeReport
		if err := b.space.Get(ctx, &r, "nodereports.tenon.sh", b.node.Name); err != nil {
			return all, "", err
		}
		if r.Status.CPUs == nil {
			return all, "", errors.New("tenond no longer reports the CPUs of node " + b.node.Name)
		}
		found := map[string]string{}
		for _, h := range r.Status.CPUs.Held {
			found[h.UID] = h.CPUs
		}
		missing := ""
		all = unit.CPUSet{}
		for _, uid := range uids {
			cpus, err := unit.ParseCPUSet(found[uid])
			if err != nil {
				return all, "", fmt.Errorf("CPUs of pod %s: %w", uid, err)
			}
			if all = all.Union(cpus); cpus.Empty() {
				missing = uid
			}
		}
		if missing == "" {
			return all, "", nil
		}
		if time.Now().After(deadline) {
			why = fmt.Sprintf("a pod has no CPUs of its own after %v", heldPatience)
			for _, p := range r.Status.CPUs.Refused {
				if p.UID == missing {
					why += ": " + p.Why
				}
			}
			return all, why, nil
		}
		select {
		case <-ctx.Done():
			return all, "", ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}
