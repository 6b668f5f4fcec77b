package cgroup

import (
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/model/unit"
)

// CPUWeight says how a group competes for CPU with its siblings. It has a weight,
// or it is idle: then it has no weight, and runs like SCHED_IDLE (Linux 5.15).
type CPUWeight struct {
	Idle   bool
	Weight unit.Weight // 0 if Idle
}

// ReadCPUWeight reads cpu.idle and cpu.weight (v1: cpu.shares). On a kernel
// without cpu.idle, Idle is false. The root has no weight: for it,
// ReadCPUWeight returns ErrUnsupported.
func (t *Tree) ReadCPUWeight(path string) (CPUWeight, error) {
	idle, err := t.readIdle(path)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return CPUWeight{}, err
	}
	if idle {
		return CPUWeight{Idle: true}, nil
	}
	if t.VersionOf(cpu) == 1 {
		w, err := t.v1ReadShares(path)
		return CPUWeight{Weight: w}, err
	}
	w, err := readOften(t, cpu, path, "cpu.weight", parseCount)
	return CPUWeight{Weight: unit.WeightOf(w)}, err
}

// WriteCPUWeight writes cpu.idle and cpu.weight (v1: cpu.shares). It rounds the
// weight to a value that the kernel can store. While a group is idle, the
// kernel refuses a weight (EINVAL); when idle is cleared, the kernel resets the
// weight. Therefore WriteCPUWeight clears idle first. If v is idle and the
// kernel has no cpu.idle, it returns ErrUnsupported.
func (t *Tree) WriteCPUWeight(path string, v CPUWeight) error {
	idle, err := t.readIdle(path)
	switch {
	case err != nil && (v.Idle || !errors.Is(err, ErrUnsupported)):
		return fmt.Errorf("write cpu weight %+v in %s: %w", v, printPath(path), err)
	case v.Idle && idle:
		return nil
	case v.Idle:
		return t.write(cpu, path, "cpu.idle", "1")
	case idle:
		if err := t.write(cpu, path, "cpu.idle", "0"); err != nil {
			return err
		}
	}
	if t.VersionOf(cpu) == 1 {
		return t.v1WriteShares(path, v.Weight)
	}
	return t.write(cpu, path, "cpu.weight", count(v.Weight.V2()))
}

func (t *Tree) readIdle(path string) (bool, error) {
	n, err := readOften(t, cpu, path, "cpu.idle", parseCount)
	return n == 1, err
}
