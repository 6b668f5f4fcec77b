package pinning

import (
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strconv"

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

func title(p Part, e Experiment) string {
	if p.Name == Pi {
		return fmt.Sprintf("π: %s, %d digits, %s, limit %s", textlayout.Plural(e.Threads, "thread", "threads"), e.Digits, textlayout.Plural(e.Rounds, "round", "rounds"), textlayout.Plural(e.Limit, "CPU", "CPUs"))
	}
	text := fmt.Sprintf("nginx: %s with a limit of %s", textlayout.Plural(e.Servers, "server", "servers"), textlayout.Plural(e.ServerLimit, "CPU", "CPUs"))
	if p.speeds {
		text += "; latencies in µs"
	}
	return text
}

// noVerdict says what no number of blocks changes.
const noVerdict = "Intervals only: this experiment gives no verdict, with any number of blocks."

// Decides says that the experiment gives no verdict.
func Decides(int) string { return noVerdict }

// sentences say how each difference changes the speed of a part.
func sentences(p Part) []string {
	if !p.Claims && p.speeds {
		return []string{"The client ran on the tested node: do not compare the speeds. Run the lab on another machine, as published."}
	}
	if !p.Claims {
		return []string{"This machine is too small for claims about speed: read the waits and the moves only."}
	}
	what := map[string]string{Pi: "time of the job", NGINX: "requests per second"}[p.Name]
	var all []string
	for _, f := range p.Factors {
		all = append(all, fmt.Sprintf("%s (%s to %s): %s %s", f.Of, f.From, f.To, what, report.FormatRatio(f.Change)))
	}
	return append(all, noVerdict)
}

// columns returns the figures that the table of a part shows.
func columns(p Part) []page.Column[Row] {
	var shown []page.Column[Row]
	for _, f := range figures {
		if f.showsFigure(p) {
			shown = append(shown, page.Column[Row]{Name: f.head, Text: func(r Row) string {
				if v, known := r.Values[f.key]; known {
					return report.FormatNumber(v.Value, f.digits)
				}
				return report.Unknown
			}})
		}
	}
	return shown
}

// Page returns what the experiment shows.
func (r Result) Page() page.Page {
	e := r.Experiment
	p := e.Page("What a quota, own CPUs and warm CPUs do", "runs.jsonl with a line for each run")
	p.Warnings = r.Warnings
	if e.Node != "" {
		text := e.Node
		if e.ClientOnNode {
			text += ", also the machine of the client"
		}
		p.Setup = append(p.Setup, page.Fact{Name: "node", Text: text})
	}
	for _, part := range r.Parts {
		s := page.Section{Title: title(part, e), Items: sentences(part)}
		if len(part.Modes) == 0 {
			s.Items = []string{"No run counts."}
		} else {
			var heads []page.Head
			for _, m := range part.Modes {
				heads = append(heads, page.Head{Text: string(m.Mode)})
			}
			s.Table = page.Across(columns(part), heads, part.Modes)
			s.Table.Label, s.Table.Cell = 16, 13
		}
		if drawn := picture(part); drawn != "" {
			s.Plots = []page.Plot{{Picture: drawn}}
		}
		p.Sections = append(p.Sections, s)
	}
	p.Sections = append(p.Sections,
		page.Section{On: page.OnlyHTML, Legend: "held: share of the quota's periods in which work was stopped; waits: time that threads wait for a CPU, per second; moves: changes of the CPU; open: at a fixed rate of requests."},
		page.Section{Title: "What this experiment does not show", Items: e.Refused}, page.Section{Title: "Void runs", Items: r.Void})
	return p
}

// picture draws the speed of each mode relative to that of shared.
func picture(p Part) template.HTML {
	if !p.Claims {
		return ""
	}
	var strips []chart.Strip
	i := slices.IndexFunc(p.Modes, func(r Row) bool { return r.Mode == Shared })
	if i < 0 {
		return ""
	}
	base := p.Modes[i].speed
	colours := []string{"--m-solo", "--m-default", "--m-exclusive-warm", "--m-tenon", "--m-burstable"}
	for k, m := range slices.DeleteFunc(slices.Clone(p.Modes), func(r Row) bool { return r.Mode == Shared }) {
		ratio := stat.Sample{}
		for block, v := range m.speed {
			if of, ok := base[block]; ok && of > 0 {
				ratio[block] = v / of
			}
		}
		e := m.Change[speed[p.Name]]
		strips = append(strips, chart.Strip{
			Name: string(m.Mode), Style: "--c:var(" + colours[k%len(colours)] + ")", Dots: ratio,
			Estimate: e,
		})
	}
	return chart.Dots(strips, chart.Scale{
		Title: "Relative to shared", Label: map[string]string{Pi: "time of the job, relative to shared", NGINX: "requests per second, relative to shared"}[p.Name],
		Format: func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) },
		Ends:   func(e stat.Estimate) string { return report.Change(report.Number(e.Value)) }, Mark: []float64{1},
	})
}
