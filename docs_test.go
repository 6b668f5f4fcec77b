package tenon_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// maxColumns is the maximum length of a line of Markdown outside tables and
// code. A diff of a longer line is hard to read.
const maxColumns = 120

// A page is a Markdown file, with its lines unchanged and without code.
type page struct {
	name  string
	lines []string
	prose []string // lines of code blocks are empty, and code spans are cut out
}

var (
	codeFence = regexp.MustCompile("^\\s*(```|~~~)")
	codeSpan  = regexp.MustCompile("`[^`]*`")
	tableRule = regexp.MustCompile(`^\|( ?:?-+:? ?\|)+$`)
	aLink     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// pages returns the Markdown files of the repository, except the published
// experiments, which do not change. Their index has its own test.
func pages(t *testing.T) map[string]page {
	t.Helper()
	all := map[string]page{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "testdata"}, d.Name()) || name == filepath.FromSlash("docs/experiments")) {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		p, err := readPage(name)
		all[p.name] = p
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 {
		t.Fatalf("found %d pages: the test looks in the wrong place", len(all))
	}
	return all
}

func readPage(name string) (page, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return page{}, err
	}
	p := page{name: filepath.ToSlash(name), lines: strings.Split(string(text), "\n")}
	code := false
	for _, line := range p.lines {
		fence := codeFence.MatchString(line)
		if fence {
			code = !code
		}
		if fence || code {
			line = ""
		}
		p.prose = append(p.prose, line)
	}
	return p, nil
}

// TestDocumentsAreWrapped also reads the pages of the experiments. In these, a whole
// command may stand in a line of prose, in backquotes or indented by four spaces.
func TestDocumentsAreWrapped(t *testing.T) {
	check := func(p page, columns func(line string) int) {
		for i, line := range p.prose {
			if n := columns(line); n > maxColumns && !strings.HasPrefix(strings.TrimSpace(line), "|") {
				t.Errorf("%s:%d has %d columns, at most %d", p.name, i+1, n, maxColumns)
			}
		}
	}
	for _, p := range pages(t) {
		check(p, utf8.RuneCountInString)
	}
	published, err := filepath.Glob(filepath.FromSlash(experiments + "/*/README.md"))
	if err != nil || len(published) == 0 {
		t.Fatalf("no experiment: %v", err)
	}
	for _, name := range published {
		p, err := readPage(name)
		if err != nil {
			t.Fatal(err)
		}
		check(p, func(line string) int {
			if strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "`") {
				return 0
			}
			return utf8.RuneCountInString(line)
		})
	}
}

// TestTheFirstPagesAreShortAndTrue checks the pages that a newcomer reads: the guide for
// contributors is short, and each test that they name exists. The forms for issues must
// have what GitHub asks of them.
func TestTheFirstPagesAreShortAndTrue(t *testing.T) {
	const mostLines = 120
	declared := map[string]bool{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"CONTRIBUTING.md", "SECURITY.md"} {
		p, err := readPage(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.lines) > mostLines {
			t.Errorf("%s has %d lines, at most %d", name, len(p.lines), mostLines)
		}
		named := regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1)
		if len(named) == 0 {
			t.Errorf("%s names no test", name)
		}
		for _, m := range named {
			if test := m[1]; !declared[test] {
				t.Errorf("%s names %s, and there is no such test", name, test)
			}
		}
	}
	forms, err := filepath.Glob(filepath.FromSlash(".github/ISSUE_TEMPLATE/*.yml"))
	if err != nil || len(forms) < 2 {
		t.Errorf("the forms for issues: %v, %v", forms, err)
	}
	for _, name := range forms {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(name) == "config.yml" {
			continue
		}
		for _, key := range []string{"name: ", "description: ", "body:"} {
			if !regexp.MustCompile("(?m)^" + key).Match(text) {
				t.Errorf("%s has no %s", name, key)
			}
		}
	}
}

// The rules of decision 112 that can be counted.
const (
	maxCell       = 200 // characters of a cell as a reader sees it
	maxShortLines = 120
)

// shortPages have at most maxShortLines lines.
var shortPages = []string{"README.md", "docs/scheduler.md"}

// TestAPageHasOneReader checks that each page of docs begins with its reader, that the
// pages which must be short are short, and that no cell of a table hides exceptions: the
// rule stands in the cell, and what it does not hold for in a list below the table.
func TestAPageHasOneReader(t *testing.T) {
	all, cells := pages(t), 0
	for name, p := range all {
		isOfUsers := path.Dir(name) == "docs" || name == "README.md" || name == "deploy/chart/tenon/README.md"
		if !isOfUsers {
			continue
		}
		if path.Dir(name) == "docs" && !strings.HasPrefix(p.lines[2], "For ") {
			t.Errorf("%s: the first sentence must say for whom the page is: \"For …\"", name)
		}
		for i, line := range p.prose {
			if !strings.HasPrefix(line, "| ") {
				continue
			}
			for cell := range strings.SplitSeq(aLink.ReplaceAllString(line, "]"), " | ") {
				cells++
				if n := utf8.RuneCountInString(strings.Trim(cell, "| ")); n > maxCell {
					t.Errorf("%s:%d: a cell of %d characters, at most %d: put its exceptions into a list below", name, i+1, n, maxCell)
				}
			}
		}
	}
	if cells < 2000 {
		t.Errorf("found %d cells: the test looks in the wrong place", cells)
	}
	for _, name := range shortPages {
		if n := len(all[name].lines) - 1; n > maxShortLines {
			t.Errorf("%s has %d lines, at most %d", name, n, maxShortLines)
		}
	}
}

// TestNoTableIsCut checks that the rows of each table follow each other. Rows after a
// blank line are no table, and a reader sees bars.
func TestNoTableIsCut(t *testing.T) {
	tables := 0
	for name, p := range pages(t) {
		for i, line := range p.prose {
			if !strings.HasPrefix(line, "|") || i > 0 && strings.HasPrefix(p.prose[i-1], "|") {
				continue
			}
			tables++
			if i+1 == len(p.prose) || !tableRule.MatchString(p.prose[i+1]) {
				t.Errorf("%s:%d: a row without the rule of a table (| --- |) below it: does a blank line cut the table?", name, i+1)
			}
		}
	}
	if tables < 100 {
		t.Errorf("found %d tables: the test looks in the wrong place", tables)
	}
}

// TestEveryPageIsLinkedFromItsIndex checks that the index of each folder links
// all its pages.
func TestEveryPageIsLinkedFromItsIndex(t *testing.T) {
	for _, folder := range []string{"docs", "docs/decisions", "docs/experiments"} {
		index, err := os.ReadFile(folder + "/README.md")
		if os.IsNotExist(err) && folder == "docs/experiments" {
			continue // linked from the index of the experiments
		}
		if err != nil {
			t.Error(err)
			continue
		}
		linked := map[string]bool{}
		for _, link := range aLink.FindAllStringSubmatch(string(index), -1) {
			target, _, _ := strings.Cut(link[1], "#")
			linked[path.Clean(target)] = true
			linked[path.Dir(target)] = true
		}
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			aPage := path.Ext(e.Name()) == ".md" && e.Name() != "README.md"
			anExperiment := folder == "docs/experiments" && e.IsDir()
			if (aPage || anExperiment) && !linked[e.Name()] {
				t.Errorf("%s/README.md does not link %s", folder, e.Name())
			}
		}
	}
}

// TestLinksOfDocumentsHaveTheirTargets checks links to files of the repository
// and to headings of pages.
func TestLinksOfDocumentsHaveTheirTargets(t *testing.T) {
	all, seen := pages(t), 0
	for _, p := range all {
		for _, link := range aLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(strings.Join(p.prose, "\n"), "x"), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			seen++
			file, heading, _ := strings.Cut(link[1], "#")
			target := p.name
			if file != "" {
				target = path.Join(path.Dir(p.name), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links %s, which does not exist", p.name, link[1])
				continue
			}
			if to, ok := all[target]; ok && heading != "" && !slices.Contains(headings(to), heading) {
				t.Errorf("%s links %s: %s has no such heading", p.name, link[1], target)
			}
		}
	}
	if seen < 100 {
		t.Errorf("found %d links: the test looks in the wrong place", seen)
	}
}

// headings returns the anchors of a page in the form of GitHub: lower case,
// hyphens for spaces, without punctuation.
func headings(p page) (anchors []string) {
	for _, line := range p.prose {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		anchors = append(anchors, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title)))
	}
	return anchors
}

// TestGlossary checks that each term has one meaning, and that its package
// exists.
func TestGlossary(t *testing.T) {
	terms := map[string]bool{}
	for _, line := range pages(t)["docs/glossary.md"].lines {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 3 || cells[0] == "term" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		term := cells[0]
		if terms[term] {
			t.Errorf("%s has two meanings", term)
		}
		terms[term] = true
		folder := strings.Trim(cells[2], "` ")
		if sources, err := filepath.Glob(folder + "/*.go"); err != nil || len(sources) == 0 {
			t.Errorf("the glossary names for %s the package %s, which has no Go files", term, folder)
		}
	}
	if len(terms) < 40 {
		t.Errorf("found %d terms, want at least 40", len(terms))
	}
}
