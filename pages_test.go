package tenon_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/test/typed"
)

// commandList lists every command of the documentation with the test that runs
// it. A line "FILE: TEXT" names a file of this repository that contains the
// text. The indented lines below it are the commands that are run there. For
// commands that a person types, FILE is byHand, and TEXT is the reason.
const (
	commandList = "testdata/commands.txt"
	byHand      = "by hand"
)

// maxByHand is the number of commands that no test runs. It may only fall.
const maxByHand = 7

// TestEveryCommandOfTheDocumentationIsRun reads the shell blocks of the README,
// of the pages of docs and of the chart's page. Each command in them must be in
// commandList, and the place that the list names must run it.
func TestEveryCommandOfTheDocumentationIsRun(t *testing.T) {
	listed := readCommandList(t)
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	used := map[string]bool{}
	for _, name := range append(pages, "README.md", "deploy/chart/tenon/README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range typed.Commands(string(text), "kubectl", "helm", "tenon", "tenond", "tenon-manager", "make", "go", "curl", "systemctl") {
			if !listed[c.Bare()] {
				t.Errorf("%s:%d: %s: name in %s what runs it", name, c.Line, c.Text, commandList)
			}
			used[c.Bare()] = true
		}
	}
	for _, command := range slices.Sorted(maps.Keys(listed)) {
		if !used[command] {
			t.Errorf("%s: no page has the command %q", commandList, command)
		}
	}
}

// readCommandList returns the commands of the list. It checks the places.
func readCommandList(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(commandList)
	if err != nil {
		t.Fatal(err)
	}
	listed, place, hands := map[string]bool{}, "", 0
	for line := range strings.SplitSeq(string(text), "\n") {
		command, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case indented && (place == "" || listed[command]):
			t.Errorf("%s: %q has no place, or two", commandList, command)
		case indented:
			listed[command] = true
			if place == byHand {
				hands++
			}
		default:
			var needle string
			place, needle, _ = strings.Cut(line, ": ")
			if place == byHand {
				continue
			}
			there, err := os.ReadFile(place)
			if err != nil || needle == "" || !strings.Contains(string(there), needle) {
				t.Errorf("%s: %s does not contain %q (%v)", commandList, place, needle, err)
			}
		}
	}
	if hands != maxByHand {
		t.Errorf("%s: %d commands by hand, and the limit is %d: it may only fall", commandList, hands, maxByHand)
	}
	return listed
}
