package kube

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// testsOf returns the names of all tests of the module. Scenarios are included.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case strings.Contains(filepath.ToSlash(path), "policy/testdata/") && strings.HasSuffix(path, ".txt"):
			all["TestScenarios/"+strings.TrimSuffix(d.Name(), ".txt")] = true
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range name.FindAllSubmatch(text, -1) {
				all[string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCompatibilityPageTellsTheTruth checks docs/compatibility.md. Each test
// that it names must exist. Each row with "yes" or "read" must name a test.
// Each label, annotation and resource of this package must have a row.
func TestCompatibilityPageTellsTheTruth(t *testing.T) {
	data, err := os.ReadFile(root + "/docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	tests := testsOf(t)
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
