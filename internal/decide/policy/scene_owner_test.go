package policy

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func shares(s string) (unit.Weight, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	return unit.WeightOfShares(n), err
}

// work returns a copy of the workload with the given name. The caller changes
// the copy.
func (n *scene) work(t *testing.T, line, id string) *node.Workload {
	t.Helper()
	n.snap.Workloads = slices.Clone(n.snap.Workloads)
	i := slices.IndexFunc(n.snap.Workloads, func(w node.Workload) bool { return string(w.ID) == id })
	if i < 0 {
		t.Fatalf("scenario line %q: there is no %s", line, id)
	}
	return &n.snap.Workloads[i]
}

// readPart adds a container to a workload, or replaces the container of that
// name.
func (n *scene) readPart(t *testing.T, line string, f []string) {
	t.Helper()
	w := n.work(t, line, f[0])
	p := node.Container{Name: f[1], Cgroup: w.Cgroup.Join(f[1])}
	for _, v := range words(strings.Join(f[2:], " ")) {
		switch v.key {
		case "limit":
			p.CPULimit = node.Some(mustParse(t, v, unit.ParseMilliCPU))
		case "request":
			p.MemoryRequest = node.Some(mustParse(t, v, unit.ParseBytes))
		case "memory":
			p.MemoryLimit = node.Some(mustParse(t, v, unit.ParseBytes))
		case "weight":
			p.Weight = node.Some(mustParse(t, v, shares))
		default:
			t.Fatalf("scenario word %q: unknown", v.key)
		}
	}
	w.Containers = append(slices.DeleteFunc(slices.Clone(w.Containers), func(o node.Container) bool { return o.Name == p.Name }), p)
	n.makeGroup(p.Cgroup)
}

// readOwner sets the overrides of a workload and replaces earlier ones:
//
//	owner ID [burst=auto] [save=200%] [borrow=150%] [for=60s] [own] [min=10%] [low=20%] [high=80%]
//	         [l3=0-30] [mb=20%] [identity=1] [spared=memory] [rank=-3] [sub=2] [block=vda:rbps=1,weight=50%]
//	owner ID limit=2 memory=1Gi             its new limits
func (n *scene) readOwner(t *testing.T, line string, f []string) {
	t.Helper()
	w := n.work(t, line, f[0])
	w.Overrides = node.Overrides{}
	b, m := &w.Overrides.Burst, &w.Overrides.Memory
	for _, v := range words(strings.Join(f[1:], " ")) {
		switch v.key {
		case "burst":
			b.Policy = v.val
		case "save":
			b.CPUPercent = node.Some(mustParse(t, v, percent))
		case "borrow":
			b.QuotaPercent = node.Some(mustParse(t, v, percent))
		case "for":
			b.PeriodSeconds = node.Some(int64(mustParse(t, v, time.ParseDuration) / time.Second))
		case "own":
			m.OwnOnly = true
		case "min":
			m.MinPercent = node.Some(mustParse(t, v, percent))
		case "low":
			m.LowPercent = node.Some(mustParse(t, v, percent))
		case "high":
			m.ThrottlingPercent = node.Some(mustParse(t, v, percent))
		case "identity":
			w.Overrides.Identity = node.Some(node.Identity(mustParse(t, v, number)))
		case "spared":
			w.Overrides.EvictionExemptFrom = strings.Split(v.val, ",")
		case "rank":
			w.EvictionPriority = mustParse(t, v, number)
		case "sub":
			w.SubPriority = mustParse(t, v, number)
		case "unlabelled":
			w.Unlabelled = true
		case "daemon":
			w.Daemon = true
		case "mid":
			w.Mid = true
		case "starting":
			w.Starting = true
		case "default":
			w.DefaultPriority = mustParse(t, v, number)
		case "limit":
			w.CPULimit = node.Some(mustParse(t, v, unit.ParseMilliCPU))
		case "memory":
			w.MemoryLimit = node.Some(mustParse(t, v, unit.ParseBytes))
		case "l3":
			from, to, _ := strings.Cut(v.val, "-")
			w.Overrides.Cache.Start, w.Overrides.Cache.End = node.Some(mustParse(t, word{"l3", from}, percent)), node.Some(mustParse(t, word{"l3", to}, percent))
		case "mb":
			w.Overrides.Cache.Bandwidth = node.Some(mustParse(t, v, percent))
		case "block":
			name, of, _ := strings.Cut(v.val, ":")
			n.readBlock(t, append([]string{"?", name}, strings.Split(of, ",")...))
			for _, block := range n.config.IO.Classes["?"] {
				w.Overrides.IO = append(w.Overrides.IO, node.BlockIO(block))
			}
			delete(n.config.IO.Classes, "?")
		default:
			t.Fatalf("scenario word %q: unknown", v.key)
		}
	}
	if w.Overrides.Cache != (node.CacheOverride{}) {
		w.Overrides.Cache.ControlGroup = node.ControlGroupPrefix + f[0]
	}
}
