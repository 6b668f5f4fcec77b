package report

import (
	"html/template"
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
	Plots    func(Evidence, Result, CommonPlots) []Plot
	Gallery  *Gallery // one picture for each mode; nil: none
	LeftOut  []string // the modes that the experiment could not run, with reasons
	// Ending returns the last sentences of the table. They say what the experiment
	// shows, for a reader who reads nothing else. If Ending is nil, there are none.
	Ending func(Evidence, Result) []string
	// Transcodes is true if the batch work is ffmpeg. Only the work of ffmpeg
	// is measured in frames.
	Transcodes bool
	// Method is the template of those paragraphs of the page that describe the
	// method. It is executed with Details.
	Method  string
	Details any
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

// A Row is a row of a table.
type Row struct {
	Label string // a leading space marks a row that belongs to the one above
	Unit  string // shown in the legend if the table has no room for it
	Cell  func(r Result, m Mode) string
}

// A Plot is a picture with its title and text.
type Plot struct {
	Title, Text string
	Picture     template.HTML
}

// CommonPlots are the dot plots by block that any study can show.
type CommonPlots struct{ P99Ratio, DelayRatio, P99, Delay Plot }

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
