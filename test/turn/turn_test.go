package turn

import (
	"fmt"
	"slices"
	"testing"
)

func TestEachElementIsSelected(t *testing.T) {
	for _, list := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}, {"a", "b", "c", "d"}} {
		seen := map[string]int{}
		for i := range 400 {
			t.Setenv(variable, fmt.Sprintf("%040x", i))
			got, err := Choose(0, list)
			if err != nil || len(got) != 1 {
				t.Fatalf("selected %q of %q, %v", got, list, err)
			}
			seen[got[0]]++
		}
		for _, e := range list {
			if seen[e] < 400/len(list)/2 {
				t.Errorf("of 400 commits %d select %s of %q", seen[e], e, list)
			}
		}
	}
}

func TestNeighboursSelectDifferentElements(t *testing.T) {
	list := []string{"a", "b", "c"}
	for n := range 60 {
		t.Setenv(variable, fmt.Sprint(n))
		one, err1 := Choose(0, list)
		two, err2 := Choose(1, list)
		if err1 != nil || err2 != nil || slices.Equal(one, two) {
			t.Errorf("turn %d: %q and %q, %v, %v", n, one, two, err1, err2)
		}
	}
}

// TestListsAreIndependent checks that all pairs of elements of two lists occur. If
// one number selected from both, a list within a list would never show some.
func TestListsAreIndependent(t *testing.T) {
	for _, two := range [][2][]string{{{"a", "b"}, {"c", "d"}}, {{"a", "b", "c"}, {"d", "e", "f"}}, {{"a", "b"}, {"c", "d", "e", "f"}}} {
		seen := map[string]int{}
		for i := range 400 {
			t.Setenv(variable, fmt.Sprint(i))
			one, _ := Choose(0, two[0])
			other, _ := Choose(0, two[1])
			seen[fmt.Sprint(one, other)]++
		}
		pairs := len(two[0]) * len(two[1])
		for pair, n := range seen {
			if n < 400/pairs/2 {
				t.Errorf("%d of 400 turns select %s", n, pair)
			}
		}
		if len(seen) != pairs {
			t.Errorf("%d pairs of %q occur, want %d", len(seen), two, pairs)
		}
	}
}

func TestSoakSelectsAll(t *testing.T) {
	t.Setenv(variable, "all")
	list := []string{"a", "b", "c"}
	if got, err := Choose(2, list); err != nil || !slices.Equal(got, list) || !All() {
		t.Errorf("selected %q, %v", got, err)
	}
	if got := Seeds([]uint64{7}, 1, 3); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("seeds %d", got)
	}
}

// TestEachTestOfAListRuns counts for each test of a list the turns in which it
// runs, and the tests of one turn.
func TestEachTestOfAListRuns(t *testing.T) {
	list := []string{"TestA", "TestB", "TestC", "TestD", "TestE", "TestF"}
	ran := map[string]int{}
	for turn := range 90 {
		t.Setenv(variable, fmt.Sprint(turn))
		now := 0
		for _, name := range list {
			test := namedTest{TB: t, name: name}
			if Skip(&test, 3, list); !test.skipped {
				ran[name]++
				now++
			}
		}
		if now != 2 {
			t.Errorf("turn %d runs %d tests, want a third of 6", turn, now)
		}
	}
	for _, name := range list {
		if ran[name] < 15 {
			t.Errorf("%s runs in %d of 90 turns", name, ran[name])
		}
	}
}

// A namedTest is a test of this name. It goes on when it is skipped.
type namedTest struct {
	testing.TB
	name    string
	skipped bool
}

func (n *namedTest) Name() string         { return n.name }
func (n *namedTest) Skipf(string, ...any) { n.skipped = true }

func TestSeedsAreThoseOfTheTurn(t *testing.T) {
	t.Setenv(variable, "one")
	one, again := Seeds([]uint64{7}, 1, 1000), Seeds([]uint64{7}, 1, 1000)
	t.Setenv(variable, "two")
	two := Seeds([]uint64{7}, 1, 1000)
	if len(one) != 2 || one[0] != 7 || !slices.Equal(one, again) || slices.Equal(one, two) || one[1] >= 1000 {
		t.Errorf("%d, %d and %d", one, again, two)
	}
}
