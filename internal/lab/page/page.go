// Package page is what an experiment shows to a reader: sections with tables,
// claims and pictures, as values. One function prints them for a terminal, one
// writes them as an HTML page. The package knows no kind of experiment.
package page

import (
	"html/template"

	"tenon.sh/tenon/internal/table"
)

// A Page is the report of an experiment. A page of something else has no Files.
type Page struct {
	Title    string
	Lead     []string // what was done, and the answers: paragraphs
	Meta     string   // when and where, in one line; only in HTML
	Warnings []string // what a reader needs before trusting a number
	Sections []Section
	Caveats  []string
	Setup    []Fact   // only in HTML
	Details  []Detail // only in HTML
	Files    string   // names the raw data; only in HTML
	// Short has the last sentences, for a reader who reads nothing else. They are
	// only for a terminal, where the end of the text stays in view.
	Short Section
}

// A Medium is where a section is shown.
type Medium int

// The values of Medium.
const (
	Both Medium = iota
	OnlyTerminal
	OnlyHTML
)

// A Section is a part of a page. What is empty is not shown.
type Section struct {
	Title   string
	On      Medium
	Text    string // a paragraph before the rest
	Table   Table
	Items   []string
	Claims  []Claim
	Body    template.HTML // only in HTML
	Key     template.HTML // legend of the pictures; only in HTML
	Plots   []Plot        // only in HTML
	Small   bool          // the pictures stand beside each other
	Details []Detail      // only in HTML
	Legend  string        // explains the table
}

// A Claim is a statement with its verdict.
type Claim struct{ Statement, Verdict, Explanation string }

// A Plot is a picture with its title and text.
type Plot struct {
	Title, Text string
	Picture     template.HTML
}

// A Fact is a line of the set-up. Code is a command or a part of one.
type Fact struct {
	Name, Text string
	Code       bool
}

// A Detail is a long text. Hidden is shown on demand.
type Detail struct{ Title, Shown, Hidden string }

// A Table has a row for each label. Its first head is that of the labels.
type Table struct {
	Heads []Head
	Rows  []Row
	// Label and Cell are the widths of the columns in a terminal; 0: as wide as
	// their content.
	Label, Cell int
}

// A Head is the heading of a column. Style sets its colour on the page.
type Head struct {
	Text  string
	Style template.CSS
}

// A Row is a row of a table. A leading space in its label marks a row that belongs
// to the one above.
type Row struct {
	Label, Unit string // the unit is only in HTML: a terminal has no room
	Cells       []string
}

// A Column is a value that a table shows of each record: its name, its unit, and
// its text.
type Column[R any] = table.Column[R]

// Down returns a table with a row for each record. The first column has the labels.
func Down[R any](columns []Column[R], records []R) Table {
	var t Table
	for _, c := range columns {
		t.Heads = append(t.Heads, Head{Text: c.Name})
	}
	for _, r := range records {
		row := Row{Label: columns[0].Text(r)}
		for _, c := range columns[1:] {
			row.Cells = append(row.Cells, c.Text(r))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Across returns a table with a column for each record, under the given heads, and
// a row for each value.
func Across[R any](columns []Column[R], heads []Head, records []R) Table {
	t := Table{Heads: append([]Head{{}}, heads...)}
	for _, c := range columns {
		row := Row{Label: c.Name, Unit: c.Unit}
		for _, r := range records {
			row.Cells = append(row.Cells, c.Text(r))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
