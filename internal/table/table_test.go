package table

import (
	"strings"
	"testing"
)

type pod struct{ name, node string }

var columns = []Column[pod]{
	{Name: "POD", Text: func(p pod) string { return p.name }},
	{Name: "NODE", Text: func(p pod) string { return OrDash(p.node) }},
	{Name: "WHY", Text: func(pod) string { return "" }},
}

// TestColumnsAreAligned prints two records as rows, and one as a list.
func TestColumnsAreAligned(t *testing.T) {
	pods := []pod{{"web-0", "worker-1"}, {"a", ""}}
	if got, want := Text(columns, pods), "POD    NODE      WHY\nweb-0  worker-1\na      -\n"; got != want {
		t.Errorf("rows:\n%s", got)
	}
	var b strings.Builder
	WriteRows(&b, "  ", columns, pods)
	if got, want := b.String(), "  web-0  worker-1\n  a      -\n"; got != want {
		t.Errorf("rows without names:\n%s", got)
	}
	b.Reset()
	facts := append(columns, Column[pod]{Name: "container", Text: func(pod) string { return Lines([]string{"x", "y"}, strings.ToUpper) }})
	WriteFacts(&b, facts, pods[1])
	if got, want := b.String(), "POD        a\nNODE       -\ncontainer  X\ncontainer  Y\n"; got != want {
		t.Errorf("list:\n%s", got)
	}
}
