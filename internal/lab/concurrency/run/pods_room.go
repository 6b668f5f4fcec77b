package run

import (
	"cmp"
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/model/unit"
)

// refuse returns the reason why the nodes cannot run a cell, or "".
func (b *pods) refuse(cell Cell) string {
	most := unit.MilliCPU(0)
	for _, t := range b.nodes {
		most = max(most, unit.CPUs(t.CPUs))
		if why := b.unfitReason(cell, t); why != "" {
			return why
		}
	}
	if cell.Strategy == Burst && b.Burst(cell.Limit) >= most {
		return fmt.Sprintf("its quota of %g CPUs is no limit on %g: it is the same as unbounded", b.Burst(cell.Limit).Cores(), most.Cores())
	}
	need, places := b.requests(cell), 0
	var rooms []string
	for _, t := range b.nodes {
		places += t.Places(need)
		rooms = append(rooms, roomOn(t, cell))
	}
	if places < cell.Jobs {
		return fmt.Sprintf("there is room for %d of its jobs at once: %s", places, strings.Join(rooms, ", "))
	}
	return ""
}

// unfitReason returns why the strategy of a cell keeps all jobs of the cell off
// a node. It returns "" if the strategy is not a reason.
func (b *pods) unfitReason(cell Cell, t nodes.Node) string {
	switch {
	case cell.Strategy == Static && t.Policy != "static":
		return fmt.Sprintf("the kubelet of node %s has CPU manager policy %q, not static", t.Name, cmp.Or(t.Policy, "not readable"))
	case cell.Strategy == Static && cell.Limit%1000 != 0:
		return "the kubelet gives exclusive CPUs for whole numbers of CPUs only"
	case cell.Strategy == Static && cell.Memory == 0:
		return "the kubelet gives exclusive CPUs to pods with a memory limit only: name one with --memory"
	case cell.Strategy == Tenon && t.Free.BatchCPU <= 0:
		return fmt.Sprintf("node %s offers no %s: kubectl tenon explain node %[1]s says why", t.Name, nodes.BatchCPU)
	}
	return ""
}

// roomOn describes what a node has free for the jobs of a cell.
func roomOn(t nodes.Node, cell Cell) string {
	cpu, memory, of := t.Free.CPU, t.Free.Memory, "CPUs"
	if cell.Strategy == Tenon {
		cpu, memory, of = t.Free.BatchCPU, t.Free.BatchMemory, "CPUs as batch resources"
	}
	return fmt.Sprintf("node %s has %g of %d %s and %.1f GiB free", t.Name, max(cpu, 0).Cores(), t.CPUs, of, float64(max(memory, 0))/(1<<30))
}

// requests returns the requests of a job of a cell.
func (b *pods) requests(cell Cell) nodes.Amounts {
	need := nodes.Amounts{CPU: cell.Limit, Memory: cell.Memory}
	switch cell.Strategy {
	case Tenon:
		return nodes.Amounts{BatchCPU: cell.Limit, BatchMemory: cmp.Or(cell.Memory, minBatchMemory)}
	case Unbounded, Control:
		need.CPU = b.share(cell.Jobs)
	}
	return need
}

// minBatchMemory is the batch-memory request of a best-effort job without a
// memory limit. If a job requested none, the node would not count the job.
const minBatchMemory = unit.Bytes(256) << 20

// share returns the CPU request of each of n jobs without a limit. It divides
// the free CPUs of the fullest node equally. A small amount stays free, so that
// a small pod of another user does not keep a job out.
func (b *pods) share(n int) unit.MilliCPU {
	least := b.nodes[0].Free.CPU
	for _, t := range b.nodes {
		least = min(least, t.Free.CPU)
	}
	each := (n + len(b.nodes) - 1) / len(b.nodes)
	return max(least*95/100/unit.MilliCPU(each), 1)
}
