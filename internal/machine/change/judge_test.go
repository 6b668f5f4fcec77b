package change

import (
	"errors"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const gib = unit.Bytes(1 << 30)

// memory returns a value with the given limits and without protection.
func memory(high, most unit.Bytes) node.Memory { return node.Memory{High: high, Max: most} }

// protected returns a value with the given protection and limit.
func protected(by, most unit.Bytes) node.Memory {
	return node.Memory{Min: by, Low: by, High: unit.MaxBytes, Max: most}
}

// TestMemoryPutBackInPartIsStillOurs clears memory.low but not memory.min. A
// kubelet does this above pods when it starts. The rest must still count as
// Tenon's.
func TestMemoryPutBackInPartIsStillOurs(t *testing.T) {
	before, written := node.NoMemoryLimit, node.Memory{Min: 1 << 20, Low: 2 << 20, High: unit.MaxBytes, Max: unit.MaxBytes}
	touch := journal.Touch{Before: before, Written: written}
	cleared, others := written, written
	cleared.Low, others.Low = 0, 3<<20
	kept := before
	kept.Low = 3 << 20
	for now, want := range map[node.Memory]node.Memory{before: before, written: before, cleared: before, others: kept} {
		if got := new(Knobs).ToRestore(node.Knob{File: node.FileMemory}, touch, now); got != want {
			t.Errorf("%v gets %v, want %v", now, got, want)
		}
	}
}

// TestEachFileIsGivenBackByItself has a container of which the container
// runtime removes the limit after Tenon has set memory.high. A release must
// remove memory.high and leave the limit as it is. If Tenon is killed at the
// write, the journal must not have the old limit any more.
func TestEachFileIsGivenBackByItself(t *testing.T) {
	for name, release := range map[string]func(b *bench, k node.Knob) error{
		"alone":      func(b *bench, k node.Knob) error { return b.Release(k) },
		"in a batch": func(b *bench, k node.Knob) error { return errors.Join(b.releaseAll([]node.Knob{k})...) },
		"after a failure": func(b *bench, k node.Knob) error {
			b.refuses[k] = true
			err := wrong(b.Release(k))
			b.refuses[k] = false
			return errors.Join(err, b.Release(k))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, onV2)
			k := b.add(t, "pod/box", node.FileMemory, memory(unit.MaxBytes, 4*gib))
			ok(t, b.Set(k, memory(3*gib, 4*gib)))
			b.values[k] = memory(3*gib, unit.MaxBytes)
			b.writing = func(k node.Knob) {
				if touch := b.touches(t)[k]; touch.Before != node.Value(node.NoMemoryLimit) || touch.Pending != node.Value(node.NoMemoryLimit) {
					t.Errorf("at the write the journal has %+v", touch)
				}
			}
			ok(t, release(b, k))
			b.hasReleased(t, k, node.NoMemoryLimit)
		})
	}
}

// wrong returns an error unless err is the refusal of a bench.
func wrong(err error) error {
	if errors.Is(err, syscall.EBUSY) {
		return nil
	}
	return errors.Join(errors.New("the write was not refused"), err)
}

// TestAFileThatTenonLeftAsItWasIsItsOwners has a cgroup above protected work,
// of which Tenon writes the protection. The kubelet lowers the limit there. Its
// limit must be the one from before, also if Tenon writes a limit later.
func TestAFileThatTenonLeftAsItWasIsItsOwners(t *testing.T) {
	for name, next := range map[string]unit.Bytes{"Tenon takes the limit over": 90 * gib, "Tenon has a limit of its own": 50 * gib} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, onV2)
			k := b.add(t, "kubepods", node.FileMemory, protected(0, 100*gib))
			ok(t, b.Set(k, protected(gib, 100*gib)))
			b.values[k] = protected(0, 90*gib) // the kubelet also clears the protection
			if before := Original(b.Knobs, k, b.touches(t)[k], b.values[k]); before != node.Value(protected(0, 90*gib)) {
				t.Errorf("the policies see %v as the value before Tenon", before)
			}
			ok(t, b.Set(k, protected(gib, next)))
			if touch := b.touches(t)[k]; touch.Before != node.Value(protected(0, 90*gib)) {
				t.Errorf("the journal has %+v", touch)
			}
			ok(t, b.Set(k, protected(2*gib, next)), b.Release(k))
			b.hasReleased(t, k, protected(0, 90*gib))
		})
	}
}

// TestAWriteLeavesWhatAnOwnerHasJustChanged has a kubelet that lowers the limit
// of a cgroup after a policy has read it. The policy raises only the protection,
// and its value has the former limit. The write must not put this limit back.
func TestAWriteLeavesWhatAnOwnerHasJustChanged(t *testing.T) {
	for name, set := range map[string]func(b *bench, k node.Knob, v node.Value) error{
		"alone":      func(b *bench, k node.Knob, v node.Value) error { return b.Set(k, v) },
		"in a batch": func(b *bench, k node.Knob, v node.Value) error { return errors.Join(b.setAll([]node.Knob{k}, v)...) },
	} {
		b := newBench(t, onV2)
		k := b.add(t, "kubepods", node.FileMemory, protected(0, 100*gib))
		ok(t, set(b, k, protected(gib, 100*gib)))
		b.values[k] = protected(gib, 90*gib)
		ok(t, set(b, k, protected(2*gib, 100*gib)))
		if now := b.values[k]; now != node.Value(protected(2*gib, 90*gib)) {
			t.Errorf("%s: the knob has %v", name, now)
		}
		if touch := b.touches(t)[k]; touch.Written != node.Value(protected(2*gib, 90*gib)) {
			t.Errorf("%s: the journal has %+v", name, touch)
		}
		ok(t, set(b, k, protected(2*gib, 50*gib)), b.Release(k))
		b.hasReleased(t, k, protected(0, 90*gib))
	}
}

// TestAWriteOfAnotherTenonIsNoOwners has another process of Tenon that writes a
// knob between two steps of a write: after the knob was read, and before its
// journal entry is read. The value that was read must not become the one from
// before.
func TestAWriteOfAnotherTenonIsNoOwners(t *testing.T) {
	b := newBench(t, onV2)
	k := b.add(t, "pod", node.FileMemory, protected(0, gib))
	ok(t, b.Set(k, protected(gib, gib)))
	reads := 0
	b.Use(knob.Table{node.FileMemory: {
		Read: func(node.Knob) (node.Value, error) {
			v := b.values[k]
			if reads++; reads == 1 {
				b.values[k] = protected(0, gib)
				ok(t, b.journal.RecordValue(k, b.values[k]))
			}
			return v, nil
		},
		Write: b.writeKnob,
	}})
	ok(t, b.Set(k, protected(2*gib, gib)))
	if touch := b.touches(t)[k]; touch.Before != node.Value(protected(0, gib)) {
		t.Errorf("the journal has %+v", touch)
	}
}

// TestAValueThatTenonReplacesIsNotTheOneFromBefore has another component that
// writes the file that Tenon writes. The value from before stays the first one.
func TestAValueThatTenonReplacesIsNotTheOneFromBefore(t *testing.T) {
	b := newBench(t, onV2)
	k := b.add(t, "pod", node.FileMemory, node.NoMemoryLimit)
	ok(t, b.Set(k, memory(gib, unit.MaxBytes)))
	b.values[k] = memory(2*gib, unit.MaxBytes)
	ok(t, b.Set(k, memory(gib, unit.MaxBytes)), b.Release(k))
	b.hasReleased(t, k, node.NoMemoryLimit)
}

// refuseMax makes a bench refuse each change of memory.max. It stores the other
// files before that, as the kernel does.
func refuseMax(b *bench) {
	b.stores = func(_ node.Knob, now, to node.Value) (node.Value, error) {
		n, v := now.(node.Memory), to.(node.Memory)
		if v.Max == n.Max {
			return v, nil
		}
		v.Max = n.Max
		return v, syscall.EBUSY
	}
}

// TestAWriteThatFailsAgainAndAgainKeepsTheValueFromBefore makes the kernel
// refuse one file of a knob in each write. After the first write, the refused
// writes change nothing, but the knob has not its value from before.
func TestAWriteThatFailsAgainAndAgainKeepsTheValueFromBefore(t *testing.T) {
	for name, set := range map[string]func(b *bench, k node.Knob, v node.Value) error{
		"alone":      func(b *bench, k node.Knob, v node.Value) error { return b.Set(k, v) },
		"in a batch": func(b *bench, k node.Knob, v node.Value) error { return errors.Join(b.setAll([]node.Knob{k}, v)...) },
	} {
		for _, earlier := range []bool{false, true} { // whether an earlier write succeeded
			b := newBench(t, onV2)
			k := b.add(t, "pod", node.FileMemory, memory(unit.MaxBytes, 8*gib))
			if earlier {
				ok(t, set(b, k, memory(7*gib, 8*gib)))
			}
			refuseMax(b)
			for _, high := range []unit.Bytes{3 * gib, 3 * gib, 2 * gib, 2 * gib} {
				ok(t, wrong(set(b, k, memory(high, 4*gib))))
				if touch := b.touches(t)[k]; touch.Before != node.Value(memory(unit.MaxBytes, 8*gib)) {
					t.Fatalf("%s, earlier %t: the journal has %+v", name, earlier, touch)
				}
			}
			ok(t, b.Release(k))
			b.hasReleased(t, k, memory(unit.MaxBytes, 8*gib))
		}
	}
}

// TestARefusalAfterAKilledWriteForgetsNothing has the journal of a process that
// was killed after it had written a knob. The next process writes or releases
// the knob, and the kernel refuses that. The knob must still be released later.
func TestARefusalAfterAKilledWriteForgetsNothing(t *testing.T) {
	for name, refused := range map[string]func(b *bench, k node.Knob) error{
		"a write":            func(b *bench, k node.Knob) error { return b.Set(k, node.Maximum{Max: 7}) },
		"a release":          func(b *bench, k node.Knob) error { return b.Release(k) },
		"a release in batch": func(b *bench, k node.Knob) error { return errors.Join(b.releaseAll([]node.Knob{k})...) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, onV2)
			k := b.add(t, "job", node.FilePIDs, node.Maximum{Max: 5})
			inode, err := b.Inode(k)
			ok(t, err, b.journal.Intend(k, inode, node.Maximum{Max: 9}, node.Maximum{Max: 5}))
			b.refuses[k] = true
			ok(t, wrong(refused(b, k)))
			b.refuses[k] = false
			ok(t, b.Release(k))
			b.hasReleased(t, k, node.Maximum{Max: 9})
		})
	}
}

// TestAFirstWriteThatIsRefusedIsForgotten checks that a knob which Tenon has
// never changed does not stay in the journal.
func TestAFirstWriteThatIsRefusedIsForgotten(t *testing.T) {
	b := newBench(t, onV2)
	k := b.add(t, "job", node.FilePIDs, node.Maximum{Max: 9})
	b.refuses[k] = true
	for range 2 {
		ok(t, wrong(b.Set(k, node.Maximum{Max: 7})))
		b.hasReleased(t, k, node.Maximum{Max: 9})
	}
}
