package page

import (
	"bytes"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/textlayout"
)

type pair struct{ name, value string }

var pairs = []Column[pair]{
	{Name: "of", Text: func(p pair) string { return p.name }},
	{Name: " amount", Unit: "s", Text: func(p pair) string { return p.value }},
}

func text(t *testing.T, p Page) (terminal, html string) {
	t.Helper()
	var a, b bytes.Buffer
	if err := p.WriteText(&a); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return a.String(), b.String()
}

func TestASectionIsShownWhereItBelongs(t *testing.T) {
	terminal, html := text(t, Page{Sections: []Section{
		{Title: "both", Items: []string{"<b>item</b>"}}, {Title: "narrow", On: OnlyTerminal, Text: "x"}, {Title: "wide", On: OnlyHTML, Text: "x"},
		{Title: "without content"}, {Title: "judged", Claims: []Claim{{"It is so", "not met", "Because."}}}, {Title: "long", Claims: []Claim{{"Is it so", "cannot tell", "Why."}}},
	}})
	for title, where := range map[string][2]bool{"both": {true, true}, "narrow": {true, false}, "wide": {false, true}, "without content": {}, "judged": {true, true}, "long": {true, true}} {
		if got := [2]bool{strings.Contains(terminal, title), strings.Contains(html, title)}; got != where {
			t.Errorf("%q is shown in terminal and HTML: %v, want %v", title, got, where)
		}
	}
	if strings.Contains(html, "<b>item") || !strings.Contains(html, `class="badge not-met"`) || !strings.Contains(terminal, "NOT MET    It is so.\n") || !strings.Contains(terminal, "CANNOT TELL Is it so.\n            Why.") {
		t.Errorf("%s\n%s", terminal, html)
	}
}

func TestTablesStandBothWaysAndFit(t *testing.T) {
	down, _ := text(t, Page{Sections: []Section{{Table: Down(pairs, []pair{{"a", "1"}, {"long name", "22"}})}}})
	if want := "\nof          amount\n------------------\na                1\nlong name       22\n"; down != want {
		t.Errorf("down:\n%s", down)
	}
	across, html := text(t, Page{Sections: []Section{{Table: Across(pairs, []Head{{Text: "x"}, {Text: "y"}}, []pair{{"a", ""}, {"b", ""}})}}})
	if want := "\n         x  y\n-------------\nof       a  b\n amount\n"; across != want {
		t.Errorf("across:\n%s", across)
	}
	if strings.Contains(html, "amount") || !strings.Contains(html, "<td>a</td><td>b</td>") {
		t.Errorf("a row without a value is shown, or another is not:\n%s", html)
	}
	wide := Table{Heads: make([]Head, 14), Rows: []Row{{Label: "label", Cells: slicesOf("12345", 13)}}}
	tight, _ := text(t, Page{Sections: []Section{{Table: wide}}})
	for line := range strings.Lines(tight) {
		if n := textlayout.Columns(strings.TrimSpace(line)); n > textlayout.Width {
			t.Errorf("a line has %d characters", n)
		}
	}
}

// TestATableIsAlsoCSV checks that each cell has its section, its row and its column.
func TestATableIsAlsoCSV(t *testing.T) {
	var b bytes.Buffer
	p := Page{Sections: []Section{{Title: "without a table", Text: "x"}, {Title: "first", Table: Across(pairs, []Head{{Text: "x"}, {Text: "y"}}, []pair{{"a", "1,5"}, {"b", ""}})}}}
	if err := p.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	if want := "section,row,unit,column,text\nfirst,of,,x,a\nfirst,of,,y,b\nfirst,\"of, amount\",s,x,\"1,5\"\n"; b.String() != want {
		t.Errorf("%s", &b)
	}
}

func slicesOf(text string, n int) []string {
	return strings.Split(strings.Repeat(text+" ", n-1)+text, " ")
}
