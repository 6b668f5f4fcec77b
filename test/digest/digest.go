package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// An event is one line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

const (
	// tail is the number of last lines of a failed test that the summary shows.
	// Before these, it shows up to the same number of the test's own messages.
	tail = 8
	// maxLine is the maximum length of a shown line of a failed test.
	maxLine = 300
	// slowSeconds is a number of seconds. A passed test that takes at least
	// that long gets a line of its own.
	slowSeconds = 1
)

// A failure is a failed test. If a package failed without a failed test, it is
// that package.
type failure struct {
	place
	name  string // printed name
	lines []string
}

// A place identifies a test of a package. If the test is empty, it is the
// package itself.
type place struct{ pkg, test string }

// A digest collects the results for the summary.
type digest struct {
	out, whole io.Writer
	lines      map[place][]string // the last lines of the running tests
	inner      map[place]bool     // tests with a failed subtest
	noting     map[place]bool     // tests whose note continues
	over       map[string]bool    // packages whose tests have all ended
	notes      []note
	toAdd      []string // lines that notes.txt lacks
	failures   []failure
	passed     int
	skipped    int
	skips      map[place]bool // tests that were skipped, or a part of them
}

func newDigest(out, whole io.Writer) *digest {
	return &digest{out: out, whole: whole, lines: make(map[place][]string), inner: make(map[place]bool), noting: make(map[place]bool), over: make(map[string]bool), skips: make(map[place]bool)}
}

func (d *digest) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(d.out, lines.Text()) // output of the go command, not of a test
			continue
		}
		d.take(e)
	}
	return lines.Err()
}

func (d *digest) take(e event) {
	switch e.Action {
	case "output", "build-output":
		fmt.Fprint(d.whole, e.Output)
		if e.Action == "build-output" {
			fmt.Fprint(d.out, e.Output)
		}
		d.line(place{e.Package, e.Test}, e.Output)
	case "pass", "fail", "skip":
		d.end(e)
	}
}

var (
	begun = regexp.MustCompile(`^\s*(===|---) `)
	// The log lines of a test are indented by four spaces. Those of a test in a
	// guest are indented by eight.
	said  = regexp.MustCompile(`^    \w+\.go:\d+: `)
	noted = regexp.MustCompile(`^    \w+\.go:\d+: NOTE: `)
)

// line records a line of a test.
func (d *digest) line(test place, text string) {
	text = strings.TrimRight(text, "\r\n")
	if test.test == "" && (text == "PASS" || text == "FAIL") {
		d.over[test.pkg] = true
	}
	if begun.MatchString(text) {
		return
	}
	switch {
	case noted.MatchString(text):
		d.noting[test] = true
		_, text, _ := strings.Cut(text, "NOTE: ")
		subject, _, _ := strings.Cut(text, ": ")
		d.notes = append(d.notes, note{nameOf(test.pkg, subject), []string{"NOTE " + text}})
	case said.MatchString(text) || !strings.HasPrefix(text, "        "):
		d.noting[test] = false
	case d.noting[test]:
		n := len(d.notes) - 1
		d.notes[n].lines = append(d.notes[n].lines, "    | "+strings.TrimSpace(text))
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	kept := append(d.lines[test], text)
	switch {
	case strings.HasPrefix(kept[0], "panic: ") && len(kept) > tail:
		return // many lines of goroutines follow
	case strings.HasPrefix(text, "panic: "):
		kept = []string{text}
	case len(kept) > 8*tail:
		old, recent := kept[:len(kept)-4*tail], kept[len(kept)-4*tail:]
		kept = append(complaints(old), recent...)
	}
	d.lines[test] = kept
}

func (d *digest) end(e event) {
	at := place{e.Package, e.Test}
	if e.Test == "" && e.Action == "fail" {
		d.countUnfinished(e.Package)
	}
	lines := d.lines[at]
	delete(d.lines, at)
	parent, isPart := parentOf(e.Test)
	switch e.Action {
	case "pass":
		if e.Test != "" {
			d.passed++
		}
	case "skip":
		if e.Test == "" {
			return // a package without tests
		}
		d.skipped++
		top, _, _ := strings.Cut(e.Test, "/")
		d.skips[place{e.Package, top}] = true
	case "fail":
		switch {
		case d.inner[at]: // the test's own messages, without the logs of its subtests
			if own := complaints(lines); len(own) > 0 && e.Test != "" {
				d.failures = append(d.failures, failure{place: at, name: e.Test, lines: own})
			}
		case e.Test == "":
			d.failures = append(d.failures, failure{place: at, name: "package " + e.Package, lines: ending(lines)})
		default:
			d.failures = append(d.failures, failure{place: at, name: e.Test, lines: ending(lines)})
		}
		d.inner[place{e.Package, parent}] = true
	}
	switch {
	case e.Test == "":
		delete(d.inner, at)
		fmt.Fprintf(d.out, "%-4s %s in %.0f s\n", e.Action, e.Package, e.Elapsed)
	case e.Action == "fail" || e.Action == "skip" && !isPart || e.Elapsed >= slowSeconds && !isPart:
		fmt.Fprintf(d.out, "%-4s %-60s %6.1f s\n", e.Action, e.Test, e.Elapsed)
	}
}

// countUnfinished counts the tests that had not ended when their package ended.
// If a test hangs or ends the whole program, go test prints no result for it.
func (d *digest) countUnfinished(pkg string) {
	var left []string
	for at := range d.lines {
		if at.pkg == pkg && at.test != "" {
			left = append(left, at.test)
		}
	}
	slices.Sort(left)
	for _, test := range left {
		at := place{pkg, test}
		d.failures = append(d.failures, failure{place: at, name: test + " (did not end)", lines: ending(d.lines[at])})
		delete(d.lines, at)
		d.inner[place{pkg, ""}] = true
	}
}

// summary writes the results.
func (d *digest) summary(w io.Writer) {
	for _, f := range d.failures {
		fmt.Fprintf(w, "FAIL %s\n", f.name)
		for _, line := range f.lines {
			fmt.Fprintf(w, "    | %.*s\n", maxLine, strings.TrimSpace(line))
		}
	}
	for _, note := range d.notes {
		fmt.Fprintln(w, strings.Join(note.lines[:min(len(note.lines), 4*tail)], "\n"))
	}
	for _, line := range d.toAdd {
		fmt.Fprintf(w, "add to test/digest/notes.txt: %s\n", line)
	}
	fmt.Fprintf(w, "%d passed, %d skipped, %d failed\n", d.passed, d.skipped, len(d.failures))
}

func (d *digest) ok() bool { return len(d.failures) == 0 && d.passed > 0 }

// complaints returns the test's own messages, without those of its guest.
func complaints(lines []string) []string {
	var own []string
	for _, line := range lines {
		if said.MatchString(line) {
			own = append(own, line)
		}
	}
	return last(own)
}

// ending returns the end of a failed test: its own messages and its last lines.
func ending(lines []string) []string {
	end := last(lines)
	return append(complaints(lines[:len(lines)-len(end)]), end...)
}

func last(lines []string) []string { return lines[max(0, len(lines)-tail):] }

// parentOf returns the parent test of a subtest.
func parentOf(test string) (parent string, isPart bool) {
	if i := strings.LastIndexByte(test, '/'); i >= 0 {
		return test[:i], true
	}
	return "", false
}
