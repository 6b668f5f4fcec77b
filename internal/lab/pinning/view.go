package pinning

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

//go:embed page.html.tmpl
var pageText string

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

// columns returns the headings of the table of a part. The function cells
// returns the row of a mode.
func columns(p Part) []string {
	heads := []string{"mode"}
	for _, f := range figures {
		if f.showsFigure(p) {
			heads = append(heads, f.head)
		}
	}
	return heads
}

func cells(p Part, r Row) []string {
	row := []string{string(r.Mode)}
	for _, f := range figures {
		if !f.showsFigure(p) {
			continue
		}
		text := report.Unknown
		if v, known := r.Values[f.key]; known {
			text = report.FormatNumber(v.Estimate, f.digits)
		}
		row = append(row, text)
	}
	return row
}

// writeTable prints the result for a terminal. The modes are columns, because
// the web servers have many figures.
func writeTable(w io.Writer, r Result) error {
	var b bytes.Buffer
	for _, p := range r.Parts {
		textlayout.Paragraph(&b, "", title(p, r.Experiment))
		if len(p.Modes) == 0 {
			textlayout.Paragraph(&b, "  ", "No run counts.")
			continue
		}
		heads := columns(p)
		rows := [][]string{}
		for _, m := range p.Modes {
			rows = append(rows, cells(p, m))
		}
		for i, head := range heads {
			fmt.Fprintf(&b, "%-16s", head)
			for _, row := range rows {
				fmt.Fprintf(&b, "%13s", row[i])
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
		for _, s := range sentences(p) {
			textlayout.Paragraph(&b, "  ", s)
		}
		b.WriteByte('\n')
	}
	textlayout.List(&b, "What this experiment does not show", r.Experiment.Refused)
	textlayout.List(&b, "Void runs", r.Void)
	textlayout.List(&b, "Warnings", r.Warnings)
	textlayout.List(&b, "Caveats", r.Experiment.Caveats)
	_, err := b.WriteTo(w)
	return err
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
			Estimate: stat.Estimate{Value: float64(e.Estimate), Low: float64(e.Low), High: float64(e.High), Blocks: e.Blocks},
		})
	}
	return chart.Dots(strips, chart.Scale{
		Title: "Relative to shared", Label: map[string]string{Pi: "time of the job, relative to shared", NGINX: "requests per second, relative to shared"}[p.Name],
		Format: func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) },
		Ends:   func(e stat.Estimate) string { return report.Change(report.Number(e.Value)) }, Mark: []float64{1},
	})
}

// writePage writes the result as one self-contained HTML page.
func writePage(w io.Writer, r Result) error {
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"style": report.Style, "join": strings.Join, "columns": columns, "cells": cells, "sentences": sentences, "picture": picture,
		"title": func(p Part) string { return title(p, r.Experiment) },
		"when":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, r); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}
