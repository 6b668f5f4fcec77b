package report

import (
	"html/template"

	"tenon.sh/tenon/internal/lab/stat"
)

// A Study is the analysis of one kind of experiment with a service under load:
// its claims and its presentation. Its functions know the records of the kind;
// this package knows only the common parts.
type Study struct {
	Title    string
	Headline func(Result) string // says in a sentence what was measured
	Legend   func(Result) string // says how to read the tables
	Tables   []Section
	Rows     []Row
	Heads    bool // columns have the heads of their modes, instead of the names
	Claims   func(Evidence, stat.Resolution) []Claim
	Figures  func(common []Row) []Row // of the table of everything; nil: the common ones
	Plots    func(Evidence, Result, CommonPlots) []Plot
	Gallery  *Gallery // a picture of one run of each mode; nil: none
	LeftOut  []string // what the experiment could not run, and why
	// Transcodes says that the batch work is ffmpeg, whose rate alone is known.
	Transcodes bool
	// Method is the template of the page's paragraphs on the method; it sees
	// Details.
	Method  string
	Details any
}

// claims judges the evidence.
func (s Study) claims(ev Evidence, resolution stat.Resolution) []Claim {
	if s.Claims == nil {
		return nil
	}
	return s.Claims(ev, resolution)
}

// A Section is a table with a title.
type Section struct {
	Title string
	Modes []Mode
}

// A Row of a table.
type Row struct {
	Label string // a leading space marks a row that belongs to the one above
	Unit  string // in the legend where there is no room for it
	Cell  func(r Result, m Mode) string
}

// A Plot is a picture with its words.
type Plot struct {
	Title, Text string
	Picture     template.HTML
}

// CommonPlots are the dots of each block that every study can show.
type CommonPlots struct{ P99Ratio, DelayRatio, P99, Delay Plot }

// A Gallery shows one run of each mode.
type Gallery struct {
	Title, Text string
	Legend      template.HTML
	Picture     func(used []Run) template.HTML // of the used runs of a mode; empty: there is none
}

// An Analysis is the result of runs of a service under load.
type Analysis struct {
	Base     Result
	study    Study
	evidence Evidence
	all      int // runs, void ones included
	doc      any // result.json
}

// Result is the content of result.json.
func (a Analysis) Result() any { return a.doc }

// WithResult is the same analysis with another result.json: that of one kind.
func (a Analysis) WithResult(doc any) Analysis {
	a.doc = doc
	return a
}

// Evidence returns the data on which the claims rest.
func (a Analysis) Evidence() Evidence { return a.evidence }
