package vm

import (
	"regexp"
	"strings"
)

// A TestResult is the result of one test or subtest of a test binary.
type TestResult struct {
	Name   string // TestX or TestX/sub
	Action string // PASS, FAIL or SKIP
	Output string // what the test logged
}

// verdict matches the result line of a test.
var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)

// switching matches a line after which the output comes from the named test.
var switching = regexp.MustCompile(`^=== (?:RUN|NAME|CONT)\s+(\S+)$`)

// ended reports whether a test binary ran all its tests. After a panic, an exit
// or a timeout, some tests have not run.
func ended(output string) bool { return lastWord.MatchString(output) }

// lastWord matches the last line of a test binary.
var lastWord = regexp.MustCompile(`(?m)^(PASS|FAIL)\r?$`)

// ParseGoTest parses the output of a test binary with -test.v. It returns the
// tests in the order of their ends.
func ParseGoTest(output string) []TestResult {
	var results []TestResult
	logged := make(map[string]*strings.Builder)
	current := ""
	for line := range strings.Lines(output) {
		if m := switching.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			current = m[1]
			continue
		}
		if m := verdict.FindStringSubmatch(line); m != nil {
			r := TestResult{Action: m[1], Name: m[2]}
			if log := logged[r.Name]; log != nil {
				r.Output = log.String()
			}
			results = append(results, r)
			current = ""
			continue
		}
		if current == "" {
			continue
		}
		if logged[current] == nil {
			logged[current] = new(strings.Builder)
		}
		logged[current].WriteString(line)
	}
	return results
}
