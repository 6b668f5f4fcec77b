package plan

import "testing"

const lastOwner = OwnerSeat

// TestOwner checks that each owner has a name of its own, and that ParseOwner
// returns the owner for this name.
func TestOwner(t *testing.T) {
	if len(ownerNames) != int(lastOwner)+1 {
		t.Fatalf("%d names for %d owners", len(ownerNames)-1, lastOwner)
	}
	seen := map[string]bool{}
	for o := Owner(0); o <= lastOwner; o++ {
		text := o.String()
		if seen[text] || (text == "") != (o == 0) {
			t.Errorf("owner %d is %q", uint8(o), text)
		}
		seen[text] = true
		if back, err := ParseOwner(text); back != o || err != nil {
			t.Errorf("%q reads as %v: %v", text, back, err)
		}
	}
	if o, err := ParseOwner("oppress"); err == nil {
		t.Errorf("a misspelt owner reads as %v", o)
	}
}
