package fate

import (
	"fmt"
	"strings"
	"testing"
)

// TestATableOfCausesStaysSmall gives each request a reason of its own.
func TestATableOfCausesStaysSmall(t *testing.T) {
	var table Causes
	for i := range 10000 {
		k := kinds[i%len(kinds)].kind
		table[table.Index(Cause{Kind: k, Reason: fmt.Sprint(i), FirstLine: strings.Repeat("x", i)})].Count++
	}
	sum := int64(0)
	for i, c := range table {
		sum += c.Count
		if table.Index(c) != i {
			t.Errorf("cause %d: %+v is not found again", i, c)
		}
	}
	if len(table) > MaxCauses || sum != 10000 {
		t.Errorf("%d causes with %d failures, want at most %d with 10000", len(table), sum, MaxCauses)
	}
	var e Errors
	e.Count(Status)
	if text := e.Texts(table, Connections{})[0]; len(text) > 500 || !strings.Contains(text, "other reasons: ") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

func TestEveryKindIsCountedAndHasWords(t *testing.T) {
	var e Errors
	for i, k := range kinds {
		for range i + 1 {
			e.Count(k.kind)
		}
	}
	n := len(kinds)
	var sum Errors
	sum.Add(e)
	sum.Add(e)
	if e.Total() != int64(n*(n+1)/2) || sum.Total() != 2*e.Total() || len(e.Texts(nil, Connections{})) != n || len(e.ByKind()) != n {
		t.Errorf("%+v, texts %q", e, e.Texts(nil, Connections{}))
	}
}

func TestTheMostFrequentCauseStandsFirst(t *testing.T) {
	e := Errors{Status: 15, Unsent: 3}
	causes := []Cause{{Kind: Status, Reason: "503", Count: 3}, {Kind: Read, Reason: "closed", Count: 9}, {Kind: Status, Reason: "404", Count: 12}}
	got := strings.Join(e.Texts(causes, Connections{All: 8, Waiting: 3, Down: 5}), "\n")
	want := "status errors: 15 answers had a status other than 2xx, or were errors (404: 12, 503: 3)\n" +
		"unsent errors: 3 requests never got a connection: of 8 connections, 3 wait for an answer and 5 could not be made"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestAFirstLineIsShort(t *testing.T) {
	for in, want := range map[string]string{"": "", "a\r\nb": "a", "\nb": "", strings.Repeat("\x00", 16<<10): strings.Repeat("\x00", maxFirstLine)} {
		if got := FirstLine([]byte(in)); got != want {
			t.Errorf("%d bytes give %q", len(in), got)
		}
	}
}
