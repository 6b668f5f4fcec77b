package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func nth(i int) node.Knob {
	return node.Knob{Cgroup: node.CgroupPath(fmt.Sprintf("kubepods/besteffort/pod-%06d", i)), File: node.FileCPUMax}
}

// TestAnEntryCostsTheSameAmongManyKnobs checks how many bytes are written for
// an entry, including compactions. This must not depend on the number of knobs
// in the journal.
func TestAnEntryCostsTheSameAmongManyKnobs(t *testing.T) {
	perEntry := func(knobs int) float64 {
		j := open(t, t.TempDir(), me)
		const rounds = 3
		for round := range rounds {
			v := node.Limit(unit.MilliCPU(100 + round))
			for i := range knobs {
				do(t, j.Intend(nth(i), uint64(i+1), node.Limit(2000), v), j.RecordValue(nth(i), v))
			}
		}
		if n := len(state(t, j).Touches); n != knobs {
			t.Fatalf("%d knobs, want %d", n, knobs)
		}
		if info, err := os.Stat(j.Path()); err != nil || info.Size() > max(512<<10, int64(knobs)*5*256) {
			t.Errorf("the file has %d bytes for %d knobs, %v", info.Size(), knobs, err)
		}
		return float64(j.Work().Bytes) / float64(2*rounds*knobs)
	}
	few, many := perEntry(50), perEntry(2000)
	if many > 2.5*few {
		t.Errorf("an entry writes %.0f bytes among 50 knobs and %.0f among 2000", few, many)
	}
}

func TestManyEntriesAreTheSameAsOneAfterAnother(t *testing.T) {
	one, many := open(t, t.TempDir(), me), open(t, t.TempDir(), me)
	before, to := node.Limit(2000), node.Limit(1000)
	var intentions []journal.Intention
	var outcomes []journal.Outcome
	var forgotten []node.Knob
	for i := range 9 {
		k := nth(i)
		intentions = append(intentions, journal.Intention{Knob: k, Inode: uint64(i + 1), Before: before, Value: to})
		do(t, one.Intend(k, uint64(i+1), before, to))
		switch i % 3 {
		case 0:
			outcomes = append(outcomes, journal.Outcome{Knob: k, Value: to})
			do(t, one.RecordValue(k, to))
		case 1:
			outcomes = append(outcomes, journal.Outcome{Knob: k})
			do(t, one.Abandon(k))
		}
		if i > 5 {
			forgotten = append(forgotten, k)
		}
	}
	for _, k := range forgotten {
		do(t, one.Forget(k))
	}
	do(t, many.IntendAll(intentions), many.ConfirmAll(outcomes), many.ForgetAll(forgotten))
	if d := cmp.Diff(state(t, one), state(t, many)); d != "" {
		t.Error(d)
	}
	next := journal.Session{PID: 9, Start: 90}
	a, err := journal.Open(filepath.Dir(many.Path()), "boot-1", next)
	do(t, err)
	do(t, a.Adopt([]node.Knob{nth(0), nth(1), nth(2), nth(8)}))
	for k, touch := range state(t, many).Touches {
		if want := map[bool]journal.Session{true: next, false: me}[k == nth(0) || k == nth(2)]; touch.By != want {
			t.Errorf("%v is of %v, want %v", k, touch.By, want)
		}
	}
}
