package policy

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// colocation returns colocation-config with its defaults.
func colocation() overcommit.Config {
	return overcommit.Config{
		Enable: true,
		CPU:    overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, Memory: overcommit.Reclaim{ThresholdPercent: 65, Policy: overcommit.ByUsage},
		Window: 5 * time.Minute, Look: time.Minute, DegradeAfter: 15 * time.Minute, RenewAfter: 5 * time.Minute, WorthPPM: 100_000,
	}
}

// configureBatch reads the words that configure the batch resources:
//
//	batch [batch.cpu=60%] [batch.memory=65%] [batch.by=maxUsageRequest] [batch.memoryby=request]
//	[batch.keep] [batch.cap=50%] [batch.least=20%] [batch.reserve=500m,2Gi] [batch.peak=24h]
func (n *scene) configureBatch(t *testing.T, w word) {
	t.Helper()
	c := &n.config.Overcommit
	switch w.key {
	case "batch":
		*c, n.config.NodeCPUs.LendLSR = colocation(), true
	case "batch.cpu":
		c.CPU.ThresholdPercent = mustParse(t, w, percent)
	case "batch.memory":
		c.Memory.ThresholdPercent = mustParse(t, w, percent)
	case "batch.by":
		c.CPU.Policy, c.Memory.Policy = overcommit.ReclaimPolicy(w.val), overcommit.ReclaimPolicy(w.val)
	case "batch.memoryby":
		c.Memory.Policy = overcommit.ReclaimPolicy(w.val)
	case "batch.keep":
		n.config.NodeCPUs.LendLSR = false
	case "batch.cap":
		p := node.Some(mustParse(t, w, percent))
		c.CPU.LimitPercent, c.Memory.LimitPercent = p, p
	case "batch.least":
		c.MinServicePercent = mustParse(t, w, percent)
	case "batch.reserve":
		cpu, memory, _ := strings.Cut(w.val, ",")
		c.ReservedCPU = mustParse(t, word{w.key, cpu}, unit.ParseMilliCPU)
		c.ReservedMemory = mustParse(t, word{w.key, memory}, unit.ParseBytes)
	case "batch.peak":
		c.Peak = overcommit.PeakPrediction{Enable: true, MarginPercent: 10, ColdStart: mustParse(t, w, time.ParseDuration)}
	default:
		t.Fatalf("scenario word %q: unknown", w.key)
	}
}

// charge reads a line such as "web=2Gi node=5Gi be=?": from now on, this is the
// memory use of workloads and of the whole node.
func (n *scene) charge(t *testing.T, line string) {
	t.Helper()
	if n.memory == nil {
		n.memory = map[node.WorkloadID]unit.Bytes{}
	}
	for _, w := range words(line) {
		if w.val == "?" {
			delete(n.memory, node.WorkloadID(w.key))
			continue
		}
		n.memory[node.WorkloadID(w.key)] = mustParse(t, w, unit.ParseBytes)
	}
}

// applyCharges puts the memory use into the snapshot. If no line has set the
// use of a workload, it is unknown.
func (n *scene) applyCharges() {
	for i, w := range n.snap.Workloads {
		if b, known := n.memory[w.ID]; known {
			n.snap.Workloads[i].Usage.Memory, n.snap.Workloads[i].Usage.WorkingSet = node.Some(b), node.Some(b)
		}
	}
	n.snap.Usage.Memory, n.snap.Usage.WorkingSet = node.Maybe[unit.Bytes]{}, node.Maybe[unit.Bytes]{}
	if b, known := n.memory["node"]; known {
		n.snap.Usage.Memory, n.snap.Usage.WorkingSet = node.Some(b), node.Some(b)
	}
}

// readTicks reads a line such as "300 web=1500m": the number of ticks, and the
// use in each tick.
func (n *scene) readTicks(t *testing.T, line string) {
	t.Helper()
	times, rest, _ := strings.Cut(line, " ")
	count, err := strconv.Atoi(times)
	if err != nil {
		t.Fatalf("scenario line \"live %s\": want a number of ticks first", line)
	}
	p := readSpell(t, rest)
	for range count {
		n.pass(p)
		n.decide(t)
	}
}

// printBatch prints the batch resources as lines of a scenario.
func (n *scene) printBatch() []string {
	return strings.Split(n.state.Batch.Offer.String(), "\n")
}
