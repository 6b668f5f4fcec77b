package cpus

import "testing"

// TestEveryCodeHasOneWordAndOneText checks the table of words. A ledger keeps a
// code in seven bits.
func TestEveryCodeHasOneWordAndOneText(t *testing.T) {
	if codes > 1<<7 {
		t.Errorf("there are %d codes, want at most %d", codes, 1<<7)
	}
	of := map[string]Code{}
	for c := range codes {
		word := c.String()
		if c == Fits {
			continue
		}
		if other, twice := of[word]; word == "" || c.Text() == "" || twice {
			t.Errorf("code %d has the word %q and the text %q, like code %d", c, word, c.Text(), other)
		}
		of[word] = c
		var back Code
		if err := back.UnmarshalText([]byte(word)); err != nil || back != c {
			t.Errorf("%s is read as %v: %v", word, back, err)
		}
	}
	if err := new(Code).UnmarshalText([]byte("own")); err == nil {
		t.Error("a word that is no code is read")
	}
}

// TestOneCPUIsNotPlural checks a choice that leaves one CPU of two that must stay.
func TestOneCPUIsNotPlural(t *testing.T) {
	why := Reason{Code: ChoiceLeavesTooFew, Open: 1, Stay: 2}
	if got, want := why.Text(), "its scheduler's choice leaves 1 CPU to share, and at least 2 must stay"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
