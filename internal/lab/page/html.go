package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html.tmpl
var pageText string

//go:embed page.css
var styleSheet string

// WriteHTML writes the page. It needs no other file: it contains its styles and
// pictures, and no scripts.
func (p Page) WriteHTML(w io.Writer) error {
	sections := p.Sections
	p.Sections = nil
	for _, s := range sections {
		if s.On == OnlyTerminal || s.empty() && s.Body == "" && len(s.Plots) == 0 && len(s.Details) == 0 {
			continue
		}
		rows := s.Table.Rows
		s.Table.Rows = nil
		for _, r := range rows {
			if strings.Join(r.Cells, "") != "" {
				s.Table.Rows = append(s.Table.Rows, r)
			}
		}
		p.Sections = append(p.Sections, s)
	}
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(styleSheet) },
		"class": func(verdict string) string { return strings.ReplaceAll(verdict, " ", "-") },
		"trim":  strings.TrimSpace,
		"minor": func(label string) bool { return strings.HasPrefix(label, " ") },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	_, err = b.WriteTo(w)
	return err
}

// Render executes a template with data, for the body of a section. A template that
// does not fit its data is a fault of the program.
func Render(text string, funcs template.FuncMap, data any) template.HTML {
	var b bytes.Buffer
	if err := template.Must(template.New("").Funcs(funcs).Parse(text)).Execute(&b, data); err != nil {
		panic(err)
	}
	return template.HTML(b.String())
}
