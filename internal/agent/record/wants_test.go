package record

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestWantsThatChangeAlikeAreOneLine records wants that are equal for three
// cgroups and different for a fourth one. The wants that are read must equal
// the recorded ones. This must hold even if equal wants become different, or
// different wants become equal.
func TestWantsThatChangeAlikeAreOneLine(t *testing.T) {
	wants := func(reasons ...string) Tick {
		var all []plan.Want
		for i, r := range reasons {
			k := node.Knob{Cgroup: node.CgroupPath("be").Join(string(rune('a' + i))), File: node.FileCPUs}
			all = append(all, plan.Want{Intent: plan.Set, Knob: k, Value: node.CPUs{Set: unit.CPUSetOf(1)}, Reason: r})
		}
		turn := Tick{}
		turn.Wants = all
		return turn
	}
	turns := []struct {
		turn  Tick
		lines int
	}{
		{wants("1", "1", "1", "x"), 4},
		{wants("2", "2", "2", "x"), 1},
		{wants("x", "x", "x", "2"), 2}, // the values change places
		{wants("3", "3", "4", "2"), 3},
		{wants("5", "5", "4", "2"), 1},
		{wants("5", "6", "4", "2"), 1}, // one cgroup disappears, and one stays
		{wants("5", "6", "4", "2"), 0},
	}
	var all []Tick
	for i, c := range turns {
		c.turn.Snapshot.At = time.Unix(int64(i), 0)
		all = append(all, c.turn)
	}
	text := linesOf(t, all, 100)
	r, err := newReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	for i, c := range turns {
		if got := strings.Count(lines[i], `"intent"`); got != c.lines {
			t.Errorf("turn %d has %d lines of wants, want %d: %s", i, got, c.lines, lines[i])
		}
		got, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffExactly(c.turn.Wants, got.Wants); diff != "" {
			t.Errorf("turn %d (-recorded +read):\n%s", i, diff)
		}
	}
}
