package kube

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/test/typed"
)

const root = "../../.."

// TestCompatibilityPageTellsTheTruth checks docs/compatibility.md. Each test
// that it names must exist. Each row with "yes" or "read" must name a test.
// Each label, annotation and resource of this package must have a row.
func TestCompatibilityPageTellsTheTruth(t *testing.T) {
	data, err := os.ReadFile(root + "/docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	tests, err := typed.Tests(root)
	if err != nil {
		t.Fatal(err)
	}
	cited := regexp.MustCompile("`(Test[\\w/-]+)`")
	rows := 0
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || slices.Contains([]string{"word", "fact"}, strings.TrimSpace(cells[0])) {
			continue
		}
		rows++
		names := cited.FindAllStringSubmatch(cells[len(cells)-1], -1)
		for _, m := range names {
			if !tests[m[1]] {
				t.Errorf("%s: there is no test %s", strings.TrimSpace(cells[0]), m[1])
			}
		}
		said := strings.TrimSpace(cells[min(1, len(cells)-1)])
		switch {
		case len(cells) == 4 && !slices.Contains([]string{"yes", "read", "not yet", "no"}, said):
			t.Errorf("%s: %q: want yes, read, not yet or no", strings.TrimSpace(cells[0]), said)
		case len(names) == 0 && (len(cells) == 2 || said == "yes" || said == "read"):
			t.Errorf("%s: no test is named", strings.TrimSpace(cells[0]))
		}
	}
	if rows < 50 {
		t.Errorf("only %d rows were read", rows)
	}

	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`"((?:[a-z]+\.)*(?:koordinator\.sh|alibabacloud\.com)/[\w-]+|kubernetes\.io/(?:batch|mid)-\w+|koord-\w+|ack-[\w-]+)"`)
	words := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range word.FindAllSubmatch(text, -1) {
			words++
			if !strings.Contains(page, "`"+string(m[1])+"`") {
				t.Errorf("%s defines %s, which the page does not mention", source, m[1])
			}
		}
	}
	if words < 25 {
		t.Errorf("only %d words were found in the sources", words)
	}
}
