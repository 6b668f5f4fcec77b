package vm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A listener records the log messages of a test.
type listener struct {
	testing.TB
	heard []string
}

func (l *listener) Logf(format string, args ...any) {
	l.heard = append(l.heard, fmt.Sprintf(format, args...))
}

// ranAs returns the output of a test binary that ran these tests. An example of
// a test is "TestA PASS".
func ranAs(end string, tests ...string) Outcome {
	var s strings.Builder
	exit := 0
	for _, test := range tests {
		name, action, _ := strings.Cut(test, " ")
		fmt.Fprintf(&s, "=== RUN   %s\n    log of %s\n--- %s: %s (0.00s)\n", name, name, action, name)
		if action == "FAIL" {
			exit = 1
		}
	}
	s.WriteString(end + "\n")
	if end != "PASS" {
		exit = 1
	}
	return Outcome{Name: "pkg", Output: s.String(), Exit: exit}
}

func TestWhatFailsInAGuestIsRepeatedOnce(t *testing.T) {
	broken := errors.New("the machine died")
	for name, c := range map[string]struct {
		first  Outcome
		second Outcome // the outcome of each repetition
		err    error

		repeated []string // arguments
		want     string   // results
		exit     int
		notes    int
	}{
		"all passed": {first: ranAs("PASS", "TestA PASS"), want: "TestA PASS"},
		"passes alone": {
			first: ranAs("FAIL", "TestA PASS", "TestB/part FAIL", "TestB FAIL"), second: ranAs("PASS", "TestB/part PASS", "TestB PASS"),
			repeated: []string{"-test.run=^TestB$"}, want: "TestA PASS TestB/part PASS TestB PASS", notes: 1,
		},
		"fails twice": {
			first: ranAs("FAIL", "TestA FAIL"), second: ranAs("FAIL", "TestA FAIL"),
			repeated: []string{"-test.run=^TestA$"}, want: "TestA FAIL", exit: 1,
		},
		"no machine for it": {
			first: ranAs("FAIL", "TestA FAIL"), err: broken,
			repeated: []string{"-test.run=^TestA$"}, want: "TestA FAIL", exit: 1,
		},
		"repeating finds no test": {
			first: ranAs("FAIL", "TestA FAIL"), second: ranAs("PASS"),
			repeated: []string{"-test.run=^TestA$"}, want: "TestA FAIL", exit: 1,
		},
		"too many": {
			first: ranAs("FAIL", "TestA FAIL", "TestB FAIL", "TestC FAIL", "TestD FAIL"),
			want:  "TestA FAIL TestB FAIL TestC FAIL TestD FAIL", exit: 1,
		},
		"a panic leaves the rest unrun": {
			first: ranAs("panic: boom", "TestA FAIL"), second: ranAs("PASS", "TestA PASS", "TestB PASS"),
			repeated: []string{""}, want: "TestA PASS TestB PASS", notes: 1,
		},
		"panics twice": {
			first: ranAs("panic: boom", "TestA PASS"), second: ranAs("panic: boom", "TestA PASS"),
			repeated: []string{""}, want: "TestA PASS", exit: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var repeated []string
			l := &listener{TB: t}
			o, results := secondChance(l, c.first, func(args ...string) (Outcome, error) {
				repeated = append(repeated, strings.Join(args, " "))
				return c.second, c.err
			})
			if diff := cmp.Diff(c.repeated, repeated); diff != "" {
				t.Errorf("repeated (-want +got):\n%s", diff)
			}
			var got []string
			for _, r := range results {
				got = append(got, r.Name+" "+r.Action)
			}
			if strings.Join(got, " ") != c.want || o.Exit != c.exit {
				t.Errorf("results %v, exit %d; want %s, exit %d", got, o.Exit, c.want, c.exit)
			}
			notes := 0
			for _, line := range l.heard {
				if strings.HasPrefix(line, "NOTE: ") {
					notes++
					if !strings.Contains(line, "first:") || !strings.Contains(line, "repeated:") {
						t.Errorf("a note without both logs: %q", line)
					}
				}
			}
			if notes != c.notes {
				t.Errorf("%d notes, want %d: %q", notes, c.notes, l.heard)
			}
		})
	}
}

func TestFindingsOfAllPartsCount(t *testing.T) {
	f := new(findings)
	f.Logf("said")
	f.Run("well", func(f *findings) { f.Logf("said") })
	if faults := f.faults(); len(faults) > 0 {
		t.Errorf("faults %q, want none", faults)
	}
	f.Errorf("bad %d", 1)
	f.Run("ill", func(f *findings) { f.Errorf("bad 2") })
	if diff := cmp.Diff([]string{"bad 1", "ill: bad 2"}, f.faults()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}
