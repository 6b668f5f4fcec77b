// Package published has the figures that the five published documents print, and
// puts figures of experiments beside them. The page docs/published.md and the
// commands tenon lab published have their tables from it.
package published

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

//go:embed figures.json
var figures []byte

// A Dataset has the documents, and the figures that they print.
type Dataset struct {
	Documents []Document `json:"documents"`
	Tables    []Table    `json:"tables"`
}

// A Document is one of the published documents.
type Document struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	By      string `json:"by"`
	Address string `json:"address"`
	Kind    string `json:"kind"` // of the experiment that repeats its own (lab.Kinds)
	// Same names a document with the same figures; its tables count for this one.
	Same string `json:"same"`
}

// A Table compares figures of one place in a document with figures of runs.
type Table struct {
	Name     string   `json:"name"`
	Document string   `json:"document"`
	Where    string   `json:"where"` // heading of the place in the document
	Columns  []string `json:"columns"`
	Down     bool     `json:"down"` // published figures relate to the first one of their column
	Rows     []Row    `json:"rows"`
	// Runs are the experiments whose figures the page shows.
	Runs []Run `json:"runs"`
	// Here are the ways to read an experiment that has just run: one for each list of
	// its modes that can stand under the columns. They name no experiment.
	Here []Run `json:"here"`
}

// A Row is one figure. Its paths lead to a value in result.json, and {} in a path
// stands for the name of the column in the run.
type Row struct {
	Fact    string         `json:"fact"`
	Unit    string         `json:"unit"`
	Theirs  []*json.Number `json:"theirs"`  // as printed; null: not printed
	Printed []*json.Number `json:"printed"` // changes in per cent as printed
	Odd     []int          `json:"odd"`     // columns whose printed change does not follow from the figures
	Base    int            `json:"base"`    // column to which published changes relate
	Ours    string         `json:"ours"`
	Of      string         `json:"of"`      // value by which Ours is divided
	Times   float64        `json:"times"`   // factor for Ours; 0 means 1
	Digits  int            `json:"digits"`  // digits of Ours after the point
	Change  string         `json:"change"`  // ratio with its interval
	Ratio   string         `json:"ratio"`   // ratio without an interval
	Refused string         `json:"refused"` // value that is false if the machine is too small
	Missing string         `json:"missing"` // why a run has no such value
	Absent  string         `json:"absent"`  // why there is no run
}

// A Run says which modes of an experiment stand under the columns of a table.
type Run struct {
	Label      string   `json:"label"`
	Experiment string   `json:"experiment"` // a folder of docs/experiments
	Columns    []string `json:"columns"`
	// Client is the load generator that the experiment must have; empty: any.
	Client string `json:"client"`
}

// Read returns the data. They are part of the program, so a fault of them is one of
// the program.
func Read() Dataset {
	var d Dataset
	in := json.NewDecoder(bytes.NewReader(figures))
	in.UseNumber()
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil {
		panic(fmt.Sprintf("read figures.json: %v", err))
	}
	return d
}

// Document returns the document with a name.
func (d Dataset) Document(name string) (Document, bool) {
	i := slices.IndexFunc(d.Documents, func(doc Document) bool { return doc.Name == name })
	if i < 0 {
		return Document{}, false
	}
	return d.Documents[i], true
}

// Of returns the tables of a document.
func (d Dataset) Of(doc Document) (tables []Table) {
	for _, t := range d.Tables {
		if t.Document == doc.Name || doc.Same != "" && t.Document == doc.Same {
			tables = append(tables, t)
		}
	}
	return tables
}
