package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// digestOf runs the digest over the output of tests, as go test -json tells it:
// "TestA/part: what it printed", "FAIL TestA".
func digestOf(t *testing.T, story string) (summary string, ok bool) {
	t.Helper()
	var in strings.Builder
	for line := range strings.Lines(story) {
		line = strings.TrimRight(line, "\n")
		e := event{Action: "output", Package: "p"}
		action, test, _ := strings.Cut(line, " ")
		switch action {
		case "PASS", "FAIL", "SKIP":
			e.Action, e.Test = strings.ToLower(action), test
		default:
			e.Test, e.Output, _ = strings.Cut(line, ": ")
			e.Output += "\n"
		}
		encoded, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&in, string(encoded))
	}
	var out strings.Builder
	ok, err := run(strings.NewReader(in.String()), &out, filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	_, summary, _ = strings.Cut("\n"+out.String(), "\n\n")
	summary, _, _ = strings.Cut(summary, "all of it: ")
	return summary, ok
}

func TestTheEndTellsWhatCameOfIt(t *testing.T) {
	many := strings.Repeat("TestA/one:     @@noise\n", 100)
	for name, c := range map[string]struct {
		story, want string
		ok          bool
	}{
		"all is well": {"TestA:     boot\nPASS TestA\nSKIP TestB\nPASS ", "1 passed, 1 skipped, 0 failed\n", true},
		"nothing ran": {"", "0 passed, 0 skipped, 0 failed\n", false},
		"a part failed": {
			many + "TestA/one:     a_test.go:3: broken\nFAIL TestA/one\nTestA:     boot\nTestA:     a_test.go:9: and this\nFAIL TestA\nPASS TestB\nFAIL ",
			"FAIL TestA/one\n" + strings.Repeat("    | @@noise\n", 14) + "    | a_test.go:3: broken\n" +
				"FAIL TestA\n    | a_test.go:9: and this\n1 passed, 0 skipped, 2 failed\n", false},
		"logs follow what it said": {
			"TestA:     a_test.go:3: broken\nTestA:     a_test.go:9: the agent said:\n" + strings.Repeat("TestA:         @@noise\n", 200) + "FAIL TestA\nFAIL ",
			"FAIL TestA\n    | a_test.go:3: broken\n    | a_test.go:9: the agent said:\n" + strings.Repeat("    | @@noise\n", 15) + "0 passed, 0 skipped, 1 failed\n", false},
		"a package failed by itself": {": exit status 2\nFAIL ", "FAIL package p\n    | exit status 2\n0 passed, 0 skipped, 1 failed\n", false},
		"a panic": {
			"TestA:     boot\nTestA: panic: test timed out after 1m\n" + strings.Repeat("TestA: goroutine\n", 500) + "FAIL ",
			"FAIL TestA (did not end)\n    | panic: test timed out after 1m\n" + strings.Repeat("    | goroutine\n", 14) + "0 passed, 0 skipped, 1 failed\n", false},
		"a note": {
			"TestA:     a_test.go:3: NOTE: passed only when repeated\nTestA:         first:\nTestA:         broken\nTestA:     noise\nTestA:         more\nPASS TestA\nPASS ",
			"NOTE passed only when repeated\n    | first:\n    | broken\n1 passed, 0 skipped, 0 failed\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := digestOf(t, c.story)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
			if ok != c.ok {
				t.Errorf("ok %v, want %v", ok, c.ok)
			}
		})
	}
}

func TestTheLogHasAllOfIt(t *testing.T) {
	log := filepath.Join(t.TempDir(), "sub", "log")
	in := `{"Action":"output","Test":"TestA","Output":"=== RUN TestA\n"}` + "\n" + `{"Action":"output","Test":"TestA","Output":"one\n"}` + "\n"
	if _, err := run(strings.NewReader(in), new(strings.Builder), log); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(log)
	if want := "=== RUN TestA\none\n"; err != nil || string(got) != want {
		t.Errorf("log %q, error %v; want %q", got, err, want)
	}
}
