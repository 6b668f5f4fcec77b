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
			t.Setenv(variable, fmt.Sprint(Of(fmt.Sprintf("%040x\n", i))))
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
	for n := range turns {
		t.Setenv(variable, fmt.Sprint(n))
		one, err1 := Choose(0, list)
		two, err2 := Choose(1, list)
		if err1 != nil || err2 != nil || slices.Equal(one, two) {
			t.Errorf("turn %d: %q and %q, %v, %v", n, one, two, err1, err2)
		}
	}
}

func TestSoakSelectsAll(t *testing.T) {
	t.Setenv(variable, "all")
	list := []string{"a", "b", "c"}
	if got, err := Choose(2, list); err != nil || !slices.Equal(got, list) || !All() {
		t.Errorf("selected %q, %v", got, err)
	}
	t.Setenv(variable, "some")
	if got, err := Choose(2, list); err == nil || All() {
		t.Errorf("%q for a word that has no meaning", got)
	}
}
