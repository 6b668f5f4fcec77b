package main

import (
	_ "embed"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed notes.txt
var notedBefore string

// A note records that a test passed only when it was repeated.
type note struct {
	test  string // see [nameOf]
	lines []string
}

// series matches a kernel series in the name of a test.
var series = regexp.MustCompile(`^\d+\.\d+$`)

// nameOf returns the name of a test in notes.txt. It contains the package. It
// does not contain the kernel, because the tests on all kernels count as one
// test.
func nameOf(pkg, test string) string {
	parts := slices.DeleteFunc(strings.Split(test, "/"), series.MatchString)
	return strings.TrimPrefix(pkg, "tenon.sh/tenon/") + " " + strings.Join(parts, "/")
}

// parseNotes parses lines of the form "DATE COMMIT PACKAGE TEST". A # begins a
// comment. It maps "PACKAGE TEST" to "DATE COMMIT".
func parseNotes(text string) (map[string]string, error) {
	known := make(map[string]string)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 4 {
			return nil, fmt.Errorf("notes.txt: %q: want DATE COMMIT PACKAGE TEST", strings.TrimSpace(line))
		}
		if _, err := time.Parse(time.DateOnly, words[0]); err != nil {
			return nil, fmt.Errorf("notes.txt: %q: %w", strings.TrimSpace(line), err)
		}
		test := words[2] + " " + words[3]
		if known[test] != "" {
			return nil, fmt.Errorf("notes.txt: %s is listed twice", test)
		}
		known[test] = words[0] + " " + words[1]
	}
	return known, nil
}

// judgeNotes turns a note into a failure if the test already had a note, either
// in notes.txt or in this run. For each other note it records the line that
// notes.txt must get.
func (d *digest) judgeNotes(known map[string]string, now string) {
	seen := make(map[string]string)
	for _, n := range d.notes {
		before := known[n.test]
		if before == "" {
			before = seen[n.test]
		}
		if before == "" {
			seen[n.test] = "in this run"
			d.toAdd = append(d.toAdd, now+" "+n.test)
			continue
		}
		d.failures = append(d.failures, failure{
			name:  n.test,
			lines: []string{"passed only when repeated, for the second time (the first: " + before + "): find the cause"},
		})
	}
}

// today returns DATE and COMMIT for a new line of notes.txt.
func today() string {
	commit := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	return time.Now().UTC().Format(time.DateOnly) + " " + commit
}
