package report

import (
	"html/template"

	"tenon.sh/tenon/internal/lab/page"
)

// A Study defines how one kind of experiment with a service under load is
// analysed and presented. Its functions know all fields of the kind's records.
// This package knows only the fields that all kinds have.
type Study struct {
	Title    string
	Headline func(Result) string // describes the experiment in one sentence
	Legend   func(Result) string // explains the tables
	Tables   []Section
	Rows     []Row
	Heads    bool // columns have the headings of their modes instead of the names
	Claims   func(Evidence) []Claim
	Figures  func(common []Row) []Row // rows of the table of all figures; nil: the common rows
	Plots    func(Evidence, Result, CommonPlots) []page.Plot
	Gallery  *Gallery // one picture for each mode; nil: none
	LeftOut  []string // the modes that the experiment could not run, with reasons
	// Ending returns the last sentences of the table. They say what the experiment
	// shows, for a reader who reads nothing else. If Ending is nil, there are none.
	Ending func(Evidence, Result) []string
	// Setup has the settings that only this kind of experiment has.
	Setup []page.Fact
	// Method has those paragraphs of the page that describe the method.
	Method template.HTML
}

func (s Study) claims(ev Evidence) []Claim {
	if s.Claims == nil {
		return nil
	}
	return s.Claims(ev)
}

// A Section is a table with a title.
type Section struct {
	Title string
	Modes []Mode
}

// A Row is a value that the tables show of each mode. A leading space in its name
// marks a row that belongs to the one above.
type Row = page.Column[InMode]

// InMode is a mode in a result.
type InMode struct {
	Result Result
	Mode   Mode
}

func (c InMode) of() ModeResult { return c.Result.Modes[c.Mode] }

// CommonPlots are the dot plots by block that any study can show.
type CommonPlots struct{ P99Ratio, DelayRatio, P99, Delay page.Plot }

// A Gallery shows one run of each mode.
type Gallery struct {
	Title, Text string
	Legend      template.HTML
	Picture     func(used []Run) template.HTML // draws one of the used runs of a mode; empty: there is no picture
}

// An Analysis is the result of analysing the runs of a service under load.
type Analysis struct {
	Base     Result
	study    Study
	evidence Evidence
	all      int // number of runs, including void ones
	doc      any // result.json
}

// Result returns the content of result.json.
func (a Analysis) Result() any { return a.doc }

// WithResult returns the analysis with doc as its result.json. It is for kinds
// of experiments that have more keys than Result.
func (a Analysis) WithResult(doc any) Analysis {
	a.doc = doc
	return a
}

// Evidence returns the data on which the claims are judged.
func (a Analysis) Evidence() Evidence { return a.evidence }
