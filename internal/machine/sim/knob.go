package sim

import (
	"fmt"
	"syscall"

	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// adapters returns an adapter for each kind of knob of this node. Knobs of
// resctrl and of isolation are journaled elsewhere, in functions of their own.
func (n *Node) adapters() knob.Table {
	readSet := func(k node.Knob) (node.CPUs, error) { return node.CPUs{Set: n.files(k).CPUs(string(k.File))}, nil }
	set := knob.NewAdapter(readSet, writeFiles(n, func(k node.Knob, v node.CPUs) ([]knob.Writing, error) {
		return []knob.Writing{{File: string(k.File), Text: v.String()}}, nil
	}))
	io := func(k node.Knob) ioFiles { return ioFiles{n.files(k)} }
	ioWeight := knob.NewAdapter(
		func(k node.Knob) (node.IOWeight, error) { return io(k).weight(k.File) },
		writeFiles(n, func(k node.Knob, v node.IOWeight) ([]knob.Writing, error) { return io(k).ofWeight(k.File, v), nil }))
	all := knob.Table{
		node.FileCPUWeight: knob.NewAdapter(
			func(k node.Knob) (node.CPUWeight, error) { return n.files(k).Weight(), nil },
			writeFiles(n, func(k node.Knob, v node.CPUWeight) ([]knob.Writing, error) { return n.files(k).OfWeight(v), nil })),
		node.FileCPUMax: knob.NewAdapter(
			func(k node.Knob) (node.CPUMax, error) { return n.files(k).Max(), nil },
			writeFiles(n, func(k node.Knob, v node.CPUMax) ([]knob.Writing, error) { return n.files(k).OfMax(v), nil })),
		node.FileCPUs: set,
		node.FileMems: set,
		node.FileMemory: knob.NewAdapter(
			func(k node.Knob) (node.Memory, error) { return n.files(k).Memory(), nil },
			writeFiles(n, func(k node.Knob, v node.Memory) ([]knob.Writing, error) {
				writes, ok := n.files(k).OfMemory(v)
				if !ok {
					return nil, fmt.Errorf("cgroup v1 has no memory.min, low and high: %w", syscall.ENOENT)
				}
				return writes, nil
			})),
		node.FileRun: knob.NewAdapter(n.readFrozen, writeFiles(n, n.runFiles)),
		node.FileIOMax: knob.NewAdapter(
			func(k node.Knob) (node.IOMax, error) { return io(k).max() },
			writeFiles(n, func(k node.Knob, v node.IOMax) ([]knob.Writing, error) { return io(k).ofMax(v), nil })),
		node.FileIOWeight:  ioWeight,
		node.FileBFQWeight: ioWeight,
		node.FileIOLatency: knob.NewAdapter(
			func(k node.Knob) (node.IOLatency, error) { return io(k).latency() },
			writeFiles(n, func(k node.Knob, v node.IOLatency) ([]knob.Writing, error) { return io(k).ofLatency(v), nil })),
		node.FileControlGroup: knob.NewAdapter(n.readMembership, n.moveTasks),
		node.FileL3:           knob.NewAdapter(controlValue[node.L3](n), writeSchemata[node.L3](n)),
		node.FileMB:           knob.NewAdapter(controlValue[node.MB](n), writeSchemata[node.MB](n)),
	}
	for _, l := range node.LimitFiles {
		all[l.File] = n.limitAdapter(l)
	}
	for _, f := range node.FilesOf(node.CategoryMark, node.CategoryScheduler, node.CategoryThreads, node.CategoryOrder) {
		all[f] = knob.Adapter{Read: n.readIsolation, Write: n.writeIsolation}
	}
	return all
}

// limitAdapter returns the adapter of a knob with one number. If the group lacks
// the file, as on another version of cgroups, reads and writes return ENOENT.
func (n *Node) limitAdapter(l node.LimitFile) knob.Adapter {
	file := string(l.File)
	return knob.NewAdapter(
		func(k node.Knob) (node.Maximum, error) {
			if _, err := n.show(k.Cgroup, file); err != nil {
				return node.Maximum{}, err
			}
			return l.Of(n.files(k).Number(file)), nil
		},
		writeFiles(n, func(_ node.Knob, v node.Maximum) ([]knob.Writing, error) {
			return []knob.Writing{{File: file, Text: v.String()}}, nil
		}))
}

// files returns the files of the group to which a knob belongs.
func (n *Node) files(k node.Knob) knob.Files { return n.groups[k.Cgroup].knobFiles(n.version) }

// writeFiles returns a function that writes a value. It writes the files that
// filesOf returns, one after the other.
func writeFiles[V node.Value](n *Node, filesOf func(node.Knob, V) ([]knob.Writing, error)) func(node.Knob, V) error {
	return func(k node.Knob, v V) error {
		files, err := filesOf(k, v)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := n.write(k.Cgroup, f.File, f.Text); err != nil {
				return err
			}
		}
		return nil
	}
}

// readFrozen returns Frozen if a freeze of the cgroup itself is requested, else Running.
func (n *Node) readFrozen(k node.Knob) (node.Run, error) {
	if n.frozenItself(k.Cgroup) {
		return node.Frozen, nil
	}
	return node.Running, nil
}
