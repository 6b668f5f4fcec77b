package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tellStory converts a story to the output of go test -json. A line of a story
// is "TestA/part: printed line" or "FAIL TestA".
func tellStory(t *testing.T, story string) io.Reader {
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
	return strings.NewReader(in.String())
}

// digestOf runs the digest over tests. The first run has one story (first), and
// each repeated test has its own (again).
func digestOf(t *testing.T, first string, again, known map[string]string) (summary string, ok bool) {
	t.Helper()
	test := func(read func(io.Reader) error, more ...string) error {
		story := first
		if len(more) == 2 {
			var known bool
			if story, known = again[more[0]]; !known || more[1] != "p" {
				t.Errorf("repeated %q", more)
			}
			delete(again, more[0])
		} else if !slices.Equal(more, []string{"./..."}) {
			t.Errorf("run with %q", more)
		}
		if err := read(tellStory(t, story)); err != nil {
			return err
		}
		if strings.Contains(story, "FAIL") {
			return errors.New("exit status 1")
		}
		return nil
	}
	var out strings.Builder
	ok, err := run(test, []string{"./..."}, options{known: known}, &out, filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	if len(again) > 0 {
		t.Errorf("not repeated: %v", again)
	}
	_, summary, _ = strings.Cut("\n"+out.String(), "\n\n")
	summary, _, _ = strings.Cut(summary, "all of it: ")
	return strings.ReplaceAll(summary, today(), "TODAY"), ok
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
			"FAIL TestA/one\n" + strings.Repeat("    | @@noise\n", tail-1) + "    | a_test.go:3: broken\n" +
				"FAIL TestA\n    | a_test.go:9: and this\n1 passed, 0 skipped, 2 failed\n", false},
		"logs follow what it said": {
			"TestA:     a_test.go:3: broken\nTestA:     a_test.go:9: the agent said:\n" + strings.Repeat("TestA:         @@noise\n", 200) + "FAIL TestA\nFAIL ",
			"FAIL TestA\n    | a_test.go:3: broken\n    | a_test.go:9: the agent said:\n" + strings.Repeat("    | @@noise\n", tail) + "0 passed, 0 skipped, 1 failed\n", false},
		"a package failed by itself": {": exit status 2\nFAIL ", "FAIL package p\n    | exit status 2\n0 passed, 0 skipped, 1 failed\n", false},
		"a panic": {
			"TestA:     boot\nTestA: panic: test timed out after 1m\n" + strings.Repeat("TestA: goroutine\n", 500) + "FAIL ",
			"FAIL TestA (did not end)\n    | panic: test timed out after 1m\n" + strings.Repeat("    | goroutine\n", tail-1) + "0 passed, 0 skipped, 1 failed\n", false},
		"a note": {
			"TestA:     a_test.go:3: NOTE: TestA/b: passed only when repeated\nTestA:         first:\nTestA:         broken\nTestA:     noise\nTestA:         more\nPASS TestA\nPASS ",
			"NOTE TestA/b: passed only when repeated\n    | first:\n    | broken\nadd to test/digest/notes.txt: TODAY p TestA/b\n1 passed, 0 skipped, 0 failed\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := digestOf(t, c.story, nil, nil)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
			if ok != c.ok {
				t.Errorf("ok %v, want %v", ok, c.ok)
			}
		})
	}
}

func TestWhatFailedIsRunOnceMore(t *testing.T) {
	const first = "TestA/one:     a_test.go:3: broken\nFAIL TestA/one\nFAIL TestA\nPASS TestB\n: FAIL\nFAIL "
	for name, c := range map[string]struct {
		first string
		again map[string]string
		want  string
		ok    bool
	}{
		"passes alone": {
			first, map[string]string{"-run=^TestA$": "PASS TestA/one\nPASS TestA\n: PASS\nPASS "},
			"NOTE TestA passed only when repeated; at first:\n    | TestA/one\n    | a_test.go:3: broken\nadd to test/digest/notes.txt: TODAY p TestA\n2 passed, 0 skipped, 0 failed\n", true},
		"fails twice": {
			first, map[string]string{"-run=^TestA$": "TestA/one:     a_test.go:3: still\nFAIL TestA/one\nFAIL TestA\n: FAIL\nFAIL "},
			"FAIL TestA/one\n    | a_test.go:3: broken\nFAIL TestA/one (repeated)\n    | a_test.go:3: still\n1 passed, 0 skipped, 2 failed\n", false},
		"is skipped alone": {
			first, map[string]string{"-run=^TestA$": "SKIP TestA\n: PASS\nPASS "},
			"FAIL TestA/one\n    | a_test.go:3: broken\n1 passed, 0 skipped, 1 failed\n", false},
		"is gone": {
			first, map[string]string{"-run=^TestA$": ": PASS\nPASS "},
			"FAIL TestA/one\n    | a_test.go:3: broken\n1 passed, 0 skipped, 1 failed\n", false},
		"one of two": {
			"FAIL TestA\nFAIL TestB\n: FAIL\nFAIL ", map[string]string{"-run=^TestA$": "PASS TestA\n: PASS\nPASS ", "-run=^TestB$": "FAIL TestB\n: FAIL\nFAIL "},
			"FAIL TestB\nFAIL TestB (repeated)\nNOTE TestA passed only when repeated; at first:\n    | TestA\nadd to test/digest/notes.txt: TODAY p TestA\n1 passed, 0 skipped, 2 failed\n", false},
		"too many": {
			"FAIL TestA\nFAIL TestB\nFAIL TestC\nFAIL TestD\n: FAIL\nFAIL ", nil,
			"FAIL TestA\nFAIL TestB\nFAIL TestC\nFAIL TestD\n0 passed, 0 skipped, 4 failed\n", false},
		"a panic leaves the rest unrun": {
			"PASS TestB\nTestA: panic: boom\nFAIL TestA\nFAIL ", nil,
			"FAIL TestA\n    | panic: boom\n1 passed, 0 skipped, 1 failed\n", false},
		"a package that does not build": {": FAIL p [build failed]\nFAIL ", nil, "FAIL package p\n    | FAIL p [build failed]\n0 passed, 0 skipped, 1 failed\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := digestOf(t, c.first, c.again, nil)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
			if ok != c.ok {
				t.Errorf("ok %v, want %v", ok, c.ok)
			}
		})
	}
}

func TestACommandThatDiesFails(t *testing.T) {
	var out strings.Builder
	died := func(read func(io.Reader) error, _ ...string) error {
		if err := read(tellStory(t, "PASS TestA\n: PASS\nPASS ")); err != nil {
			return err
		}
		return errors.New("signal: killed")
	}
	ok, err := run(died, []string{"./..."}, options{}, &out, filepath.Join(t.TempDir(), "log"))
	if ok || err != nil || !strings.Contains(out.String(), "signal: killed") {
		t.Errorf("ok %v, error %v:\n%s", ok, err, out.String())
	}
}

func TestAfterAnInterruptNothingIsRun(t *testing.T) {
	interrupted := make(chan os.Signal, 1)
	command := []string{"sh", "-c", "echo $*", "sh", "first"}
	read := func(in io.Reader) error {
		got, err := io.ReadAll(in)
		if string(got) != "first second\n" {
			t.Errorf("printed %q", got)
		}
		return err
	}
	if err := goTest(command, interrupted)(read, "second"); err != nil {
		t.Error(err)
	}
	interrupted <- os.Interrupt
	if err := goTest(command, interrupted)(read, "second"); err == nil {
		t.Error("no error after an interrupt")
	}
}

func TestTheLogHasAllOfIt(t *testing.T) {
	log := filepath.Join(t.TempDir(), "sub", "log")
	in := `{"Action":"output","Test":"TestA","Output":"=== RUN TestA\n"}` + "\n" + `{"Action":"output","Test":"TestA","Output":"one\n"}` + "\n"
	test := func(read func(io.Reader) error, _ ...string) error { return read(strings.NewReader(in)) }
	if _, err := run(test, nil, options{}, new(strings.Builder), log); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(log)
	if want := "=== RUN TestA\none\n"; err != nil || string(got) != want {
		t.Errorf("log %q, error %v; want %q", got, err, want)
	}
}

func TestWhatWasSkippedIsListedAndCanBeRun(t *testing.T) {
	const story = `{"Action":"pass","Package":"a","Test":"TestA"}
{"Action":"skip","Package":"b","Test":"TestA/part"}
{"Action":"skip","Package":"none"}
{"Action":"skip","Package":"a/b","Test":"TestB"}
`
	dir := t.TempDir()
	list := filepath.Join(dir, "skipped")
	test := func(end error) tester {
		return func(read func(io.Reader) error, _ ...string) error {
			return errors.Join(read(strings.NewReader(story)), end)
		}
	}
	if ok, err := run(test(errors.New("exit status 1")), nil, options{once: true, skipped: list}, io.Discard, filepath.Join(dir, "log")); ok || err != nil {
		t.Errorf("ok %v, error %v of tests that failed", ok, err)
	}
	if _, err := os.Stat(list); err == nil {
		t.Error("there is a list although the tests failed")
	}
	ok, err := run(test(nil), nil, options{once: true, skipped: list}, io.Discard, filepath.Join(dir, "log"))
	got, _ := os.ReadFile(list)
	if !ok || err != nil || string(got) != "a/b TestB\nb TestA\n" {
		t.Errorf("ok %v, error %v, list %q", ok, err, got)
	}
	which, err := readSkipped(list)
	if want := []string{"-run=^(TestA|TestB)$", "a/b", "b"}; err != nil || !slices.Equal(which, want) {
		t.Errorf("to run: %q, error %v; want %q", which, err, want)
	}
	for _, text := range []string{"", "a\n", "a \n"} {
		if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if which, err := readSkipped(list); err == nil {
			t.Errorf("of %q, which names no test, it runs %q", text, which)
		}
	}
}

func TestOnceIsOnce(t *testing.T) {
	var runs int
	test := func(read func(io.Reader) error, _ ...string) error {
		runs++
		return errors.Join(read(tellStory(t, "FAIL TestA\n: FAIL\nFAIL ")), errors.New("exit status 1"))
	}
	if ok, err := run(test, nil, options{once: true}, io.Discard, filepath.Join(t.TempDir(), "log")); ok || err != nil || runs != 1 {
		t.Errorf("ok %v, error %v after %d runs, want one", ok, err, runs)
	}
}
