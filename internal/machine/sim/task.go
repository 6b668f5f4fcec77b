package sim

import (
	"fmt"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Start starts a sleeping task in a group, and charges its memory to the group.
func (n *Node) Start(p node.CgroupPath, memory unit.Bytes) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastPID++
	pid := n.lastPID
	n.tasks[pid] = &task{memory: memory, has: map[node.File]bool{}}
	if err := n.attach(p, pid); err != nil {
		delete(n.tasks, pid)
		return 0, err
	}
	return pid, nil
}

// Attach moves a task to a group.
func (n *Node) Attach(p node.CgroupPath, pid int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.attach(p, pid)
}

func (n *Node) attach(p node.CgroupPath, pid int) error {
	if err := n.ask(op{n: n, kind: "attach", path: p, g: n.groups[p], pid: pid}); err != nil {
		return fmt.Errorf("attach %d to %s: %w", pid, p, err)
	}
	if t := n.tasks[pid]; t != nil {
		t.at = p
	}
	return nil
}

// Fork makes a task start a child that ends at once.
func (n *Node) Fork(pid int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.tasks[pid]
	if t == nil {
		return fmt.Errorf("fork %d: %w", pid, errNoTask)
	}
	if err := n.ask(op{n: n, kind: "fork", path: t.at, g: n.groups[t.at], pid: pid}); err != nil {
		return fmt.Errorf("fork %d in %s: %w", pid, t.at, err)
	}
	return nil
}

// Stop ends a task and reaps it.
func (n *Node) Stop(pid int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tasks[pid] == nil {
		return fmt.Errorf("stop %d: %w", pid, errNoTask)
	}
	delete(n.tasks, pid)
	return nil
}

// Demand sets how much CPU a task uses if it gets enough CPU time.
func (n *Node) Demand(pid int, cpu unit.MilliCPU) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.tasks[pid]
	if t == nil {
		return fmt.Errorf("set the demand of %d: %w", pid, errNoTask)
	}
	t.demand = cpu
	return nil
}

// tasksIn returns the number of tasks in p, or in and below p if below is true.
func (n *Node) tasksIn(p node.CgroupPath, below bool) int64 {
	count := int64(0)
	for _, t := range n.tasks {
		if t.at == p || (below && p.Contains(t.at)) {
			count++
		}
	}
	return count
}

func (n *Node) memoryOf(p node.CgroupPath) unit.Bytes {
	var sum unit.Bytes
	for _, t := range n.tasks {
		if p.Contains(t.at) {
			sum += t.memory
		}
	}
	return sum
}
