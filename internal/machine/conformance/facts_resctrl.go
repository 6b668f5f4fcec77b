package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
)

// bench is the name of the control group in which the facts are checked. Tenon
// itself makes no group with this name.
const bench = "tenon-bench"

func needsL3(b *ControlGroupBench) string {
	if len(b.s.Resctrl.L3.Domains) == 0 {
		return "this machine does not divide its L3 caches"
	}
	return ""
}

func needsMB(b *ControlGroupBench) string {
	if len(b.s.Resctrl.MBDomains) == 0 {
		return "this machine does not divide its memory bandwidth"
	}
	return ""
}

// needsSteps returns "" if the machine rounds memory bandwidth, else why it does not.
func needsSteps(b *ControlGroupBench) string {
	if b.s.Knobs.Kernel.MB.Step < 2 {
		return "this machine accepts every number for the memory bandwidth"
	}
	return needsMB(b)
}

func needsNeighbours(b *ControlGroupBench) string {
	if b.s.Resctrl.L3.Sparse || bits.OnesCount64(b.s.Resctrl.L3.Mask) < 3 {
		return "this machine accepts ways that are not consecutive"
	}
	return needsL3(b)
}

func needsAWay(b *ControlGroupBench) string {
	if b.s.Resctrl.L3.Least < 1 {
		return "this machine accepts a group without ways"
	}
	return needsL3(b)
}

// uniformLine returns a line of schemata with the same value for every cache.
func uniformLine(ids []node.CacheID, value string) string {
	var parts []string
	for _, id := range ids {
		parts = append(parts, fmt.Sprintf("%d=%s", id, value))
	}
	return strings.Join(parts, ";")
}

// firstCache returns the first L3 cache, and the mask with all its ways.
func (b *ControlGroupBench) firstCache() (id node.CacheID, full string) {
	return b.s.Resctrl.L3.Domains[0], fmt.Sprintf("%x", b.s.Resctrl.L3.Mask)
}

// refusesL3 returns a function. It checks that the kernel refuses a value for
// the first L3 cache.
func refusesL3(value, status string) func(*ControlGroupBench) error {
	return func(b *ControlGroupBench) error {
		if err := b.control(bench); err != nil {
			return err
		}
		id, _ := b.firstCache()
		return b.mustRefuseText(bench, "schemata", fmt.Sprintf("%s:%d=%s\n", b.l3(), id, value), status, syscall.EINVAL)
	}
}

func schemataFacts() []ControlFact {
	return []ControlFact{
		{
			Name: "ways that do not exist are refused", Needs: needsL3,
			Check: func(b *ControlGroupBench) error {
				return refusesL3(fmt.Sprintf("%x", b.s.Resctrl.L3.Mask+1), "Mask out of range")(b)
			},
		},
		{Name: "ways apart from each other are refused", Needs: needsNeighbours, Check: refusesL3("5", "non-consecutive")},
		{Name: "a group without ways is refused", Needs: needsAWay, Check: refusesL3("0", "Mask out of range")},
		{Name: "a mask that is not a number is refused", Needs: needsL3, Check: refusesL3("way", "Non-hex")},
		{
			Name: "a cache that comes twice is refused", Needs: needsL3,
			Check: func(b *ControlGroupBench) error {
				id, full := b.firstCache()
				return refusesL3(fmt.Sprintf("%s;%d=%s", full, id, full), "Duplicate domain")(b)
			},
		},
		{
			Name: "a cache that does not exist is refused", Needs: needsL3,
			Check: func(b *ControlGroupBench) error {
				_, full := b.firstCache()
				return refusesL3(full+";999="+full, "")(b)
			},
		},
		{
			Name: "an unknown resource is refused",
			Check: func(b *ControlGroupBench) error {
				if err := b.control(bench); err != nil {
					return err
				}
				return b.mustRefuseText(bench, "schemata", "XX:0=1\n", "Unknown or unsupported resource name", syscall.EINVAL)
			},
		},
		{
			Name: "a line without a newline is refused", Needs: needsL3,
			Check: func(b *ControlGroupBench) error {
				if err := b.control(bench); err != nil {
					return err
				}
				id, full := b.firstCache()
				return b.mustRefuseText(bench, "schemata", fmt.Sprintf("%s:%d=%s", b.l3(), id, full), "", syscall.EINVAL)
			},
		},
		{
			Name: "a cache that is not named keeps its ways", Needs: needsL3,
			Check: func(b *ControlGroupBench) error {
				if err := b.control(bench); err != nil {
					return err
				}
				id, full := b.firstCache()
				one := fmt.Sprintf("%d=1", id)
				want := strings.Replace(uniformLine(b.s.Resctrl.L3.Domains, full), fmt.Sprintf("%d=%s", id, full), one, 1)
				return b.writeLine(bench, b.l3(), one, want)
			},
		},
		{
			Name: "bandwidth above the most is refused", Needs: needsMB,
			Check: func(b *ControlGroupBench) error {
				if err := b.control(bench); err != nil {
					return err
				}
				text := fmt.Sprintf("MB:%d=%d\n", b.s.Resctrl.MBDomains[0], b.s.Knobs.Kernel.MB.Most+1)
				return b.mustRefuseText(bench, "schemata", text, "out of range", syscall.EINVAL)
			},
		},
		{
			Name: "bandwidth is rounded up to the next step", Needs: needsSteps,
			Check: func(b *ControlGroupBench) error {
				if err := b.control(bench); err != nil {
					return err
				}
				rule := b.s.Knobs.Kernel.MB
				n := max(rule.Least, rule.Step) + 1
				want := node.MBOf(map[node.CacheID]uint64{0: n}).Round(b.s.Knobs.Kernel).(node.MB)
				return b.writeLine(bench, "MB", uniformLine(b.s.Resctrl.MBDomains, fmt.Sprint(n)),
					uniformLine(b.s.Resctrl.MBDomains, strings.TrimPrefix(want.Schema, "0=")))
			},
		},
		{Name: "a file says whether the threads of a core share a limit of bandwidth", Needs: needsMB, Check: throttleModeShows},
		{
			Name: "a new group has everything",
			Check: func(b *ControlGroupBench) error {
				if err := b.control(bench); err != nil {
					return err
				}
				if r := b.s.Resctrl; len(r.L3.Domains) > 0 {
					_, full := b.firstCache()
					if err := b.mustRead(bench, b.l3(), uniformLine(r.L3.Domains, full)); err != nil {
						return err
					}
				}
				if r := b.s.Resctrl; len(r.MBDomains) > 0 {
					return b.mustRead(bench, "MB", uniformLine(r.MBDomains, fmt.Sprint(b.s.Knobs.Kernel.MB.Most)))
				}
				return nil
			},
		},
	}
}

// throttleModeShows compares the file with the snapshot.
func throttleModeShows(b *ControlGroupBench) error {
	mode, err := b.ReadControl(node.DefaultControlGroup, "info/MB/thread_throttle_mode")
	want := strings.TrimSpace(mode) == "max"
	if errors.Is(err, fs.ErrNotExist) { // an older kernel, or a processor of another vendor
		want, err = b.s.Knobs.Kernel.MB.Unit != node.BandwidthEighths, nil
	}
	if got := b.s.Resctrl.MBPerCore; err == nil && got != want {
		err = fmt.Errorf("the mode is %q, and the snapshot says %v", mode, got)
	}
	return err
}

func controlGroupFacts() []ControlFact {
	return []ControlFact{
		{
			Name: "an existing control group cannot be made again",
			Check: func(b *ControlGroupBench) error {
				if err := b.control(bench); err != nil {
					return err
				}
				return mustFail(b.MakeControl(bench), syscall.EEXIST)
			},
		},
		{
			Name: "there are at most as many control groups as CLOSIDs",
			Check: func(b *ControlGroupBench) error {
				for i := range b.s.Resctrl.Groups - 1 - b.s.Resctrl.Others {
					if err := b.control(fmt.Sprint(bench, i)); err != nil {
						return err
					}
				}
				err := b.MakeControl(bench)
				if err == nil {
					b.made = append(b.made, bench)
				}
				return mustFail(err, syscall.ENOSPC)
			},
		},
		{
			Name: "a control group cannot be made in another",
			Check: func(b *ControlGroupBench) error {
				if err := b.control(bench); err != nil {
					return err
				}
				return mustFail(b.MakeControl(bench+"/inner"), syscall.EPERM)
			},
		},
		{
			Name: "a thread is in one control group",
			Check: func(b *ControlGroupBench) error {
				pid, err := b.task(b.cgroup, 0)
				if err != nil {
					return err
				}
				return firstOf(
					func() error { return b.control(bench) },
					func() error { return b.mustHold(node.DefaultControlGroup, pid) },
					func() error { return b.WriteControl(bench, "tasks", fmt.Sprintln(pid)) },
					func() error { return b.mustHold(bench, pid) },
					func() error {
						if b.mustHold(node.DefaultControlGroup, pid) == nil {
							return fmt.Errorf("thread %d is in two control groups", pid)
						}
						return nil
					},
				)
			},
		},
		{
			Name: "a thread that has ended is refused",
			Check: func(b *ControlGroupBench) error {
				pid, err := b.task(b.cgroup, 0)
				if err != nil {
					return err
				}
				return firstOf(
					func() error { return b.control(bench) },
					func() error { return b.Stop(pid) },
					func() error { return b.mustRefuseText(bench, "tasks", fmt.Sprintln(pid), "No task", syscall.ESRCH) },
				)
			},
		},
		{
			Name: "the threads of a removed control group go to the default one",
			Check: func(b *ControlGroupBench) error {
				pid, err := b.task(b.cgroup, 0)
				if err != nil {
					return err
				}
				return firstOf(
					func() error { return b.control(bench) },
					func() error { return b.WriteControl(bench, "tasks", fmt.Sprintln(pid)) },
					func() error { return b.RemoveControl(bench) },
					func() error { return b.mustHold(node.DefaultControlGroup, pid) },
				)
			},
		},
	}
}
