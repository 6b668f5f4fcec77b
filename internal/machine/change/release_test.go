package change

import (
	"errors"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestManyBatchesAreReleasedAsEachKnobWouldBe releases knobs of several batches,
// whose work overlaps. The kernel refuses one knob, another program has changed
// one, and one cgroup was made again. Each write must be in the journal first.
func TestManyBatchesAreReleasedAsEachKnobWouldBe(t *testing.T) {
	const refused, foreign, again = MaxKnobs + 7, 2*MaxKnobs + 1, 3 * MaxKnobs
	b, knobs := plant(t, 3*MaxKnobs+5)
	for i := 0; i < len(knobs); i += MaxKnobs {
		if err := errors.Join(b.setAll(knobs[i:min(i+MaxKnobs, len(knobs))], node.Limit(100))...); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]Taken, 0, len(knobs))
	for _, k := range knobs {
		touch, _, err := b.journal.Touch(k)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Taken{k, touch})
	}
	b.refuses[knobs[refused]] = true
	b.values[knobs[foreign]] = node.Limit(300)
	all[again].Touch.Inode++
	b.writing = func(k node.Knob) {
		if touch, known, err := b.journal.Touch(k); err != nil || !known || touch.Pending != node.Value(node.Limit(2000)) {
			t.Errorf("at its write the journal has %+v of %v, %v", touch, k, err)
		}
	}
	for i, err := range (ManyKnobs{b.Knobs}).ReleaseAs(all) {
		want := node.Value(node.Limit(2000))
		switch i {
		case refused, again:
			want = node.Limit(100)
		case foreign:
			want = node.Limit(300)
		}
		if errors.Is(err, syscall.EBUSY) != (i == refused) || b.values[knobs[i]] != want {
			t.Errorf("knob %d: %v, and it has %v", i, err, b.values[knobs[i]])
		}
	}
	left := b.touches(t)
	if _, kept := left[knobs[refused]]; !kept {
		t.Error("the journal has forgotten the knob that the kernel refused")
	}
	for i, k := range knobs {
		if _, kept := left[k]; kept && i != refused && i != again {
			t.Errorf("the journal still has knob %d", i)
		}
	}
}
