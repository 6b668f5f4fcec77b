package main

import (
	"fmt"
	"slices"
	"strings"
)

// accidents is the number of tests that may fail by accident. If more fail,
// something is broken, and no test is repeated.
const accidents = 3

// repeat runs each failed test once more, alone. If the test then passes, it
// gets a note instead of a failure.
func (d *digest) repeat(test tester) {
	failed := d.failedTests()
	if len(failed) > accidents {
		fmt.Fprintf(d.out, "%d tests failed, which is no accident: not repeated\n", len(failed))
		return
	}
	for _, at := range failed {
		fmt.Fprintf(d.out, "once more: %s\n", at.test)
		again := newDigest(d.out, d.whole)
		err := test(again.read, "-run=^"+at.test+"$", at.pkg)
		d.notes = append(d.notes, again.notes...)
		if err != nil || !again.ok() {
			for _, f := range again.failures {
				f.name += " (repeated)"
				d.failures = append(d.failures, f)
			}
			continue
		}
		lines := []string{"NOTE " + at.test + " passed only when repeated; at first:"}
		d.failures = slices.DeleteFunc(d.failures, func(f failure) bool {
			if f.topTest() != at {
				return false
			}
			lines = append(lines, "    | "+f.name)
			for _, line := range f.lines {
				lines = append(lines, "    | "+strings.TrimSpace(line))
			}
			d.passed++
			return true
		})
		d.notes = append(d.notes, note{nameOf(at.pkg, at.test), lines})
	}
}

// failedTests returns the failed tests that can be repeated. If not all tests
// of a package have ended, it omits that package, because some of its tests may
// not have run.
func (d *digest) failedTests() []place {
	var tests []place
	for _, f := range d.failures {
		if at := f.topTest(); d.over[at.pkg] && at.test != "" && !slices.Contains(tests, at) {
			tests = append(tests, at)
		}
	}
	return tests
}

// topTest returns the top-level test of a failure.
func (f failure) topTest() place {
	name, _, _ := strings.Cut(f.test, "/")
	return place{f.pkg, name}
}
