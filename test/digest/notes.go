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

// A note says that a test passed only when it was run again.
type note struct {
	test  string // see [nameOf]
	lines []string
}

// series is a part of a test's name that is the series of a kernel.
var series = regexp.MustCompile(`^\d+\.\d+$`)

// nameOf names a test as notes.txt does: with its package, and without the
// kernel that it ran on, as it is one test on all of them.
func nameOf(pkg, test string) string {
	parts := slices.DeleteFunc(strings.Split(test, "/"), series.MatchString)
	return strings.TrimPrefix(pkg, "tenon.sh/tenon/") + " " + strings.Join(parts, "/")
}

// parseNotes reads lines of "DATE COMMIT PACKAGE TEST"; # begins a comment. It
// returns DATE and COMMIT by "PACKAGE TEST".
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

// judgeNotes makes a failure of each note of a test that has had one before, in
// notes.txt or in this run, and remembers the line that notes.txt lacks of each
// other one.
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

// today returns DATE and COMMIT for a line of notes.txt.
func today() string {
	commit := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	return time.Now().UTC().Format(time.DateOnly) + " " + commit
}
