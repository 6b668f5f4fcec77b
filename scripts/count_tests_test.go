// Package scripts_test tests the scripts of this folder.
package scripts_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// count runs count-tests.awk over a story. A line of it is "ACTION TEST" or
// "TEST: printed line"; an empty TEST is the package p.
func count(t *testing.T, story, known string) (summary, skipped string, ok bool) {
	t.Helper()
	var in strings.Builder
	for line := range strings.Lines(story) {
		event := map[string]string{"Package": "tenon.sh/tenon/p"}
		if test, text, is := strings.Cut(line, ": "); is {
			event["Action"], event["Test"], event["Output"] = "output", test, text
		} else {
			action, test, _ := strings.Cut(strings.TrimSpace(line), " ")
			event["Action"] = action
			if test != "" {
				event["Test"] = test
			}
		}
		text, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(text, '\n'))
	}
	notes, skips := filepath.Join(t.TempDir(), "notes"), filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(notes, []byte("# a comment\n"+known), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("awk", "-v", "notes="+notes, "-v", "today=TODAY COMMIT", "-v", "skips="+skips, "-f", "count-tests.awk")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.CombinedOutput()
	list, _ := os.ReadFile(skips) // there is none if nothing was skipped
	return strings.ReplaceAll(string(out), notes, "NOTES"), string(list), err == nil
}

func TestTheEndSaysWhatCameOfTheTests(t *testing.T) {
	const again = "run TestA\nfail TestA\nfail\nrun TestA\npass TestA\npass\n"
	for name, c := range map[string]struct {
		story, known, want string
		ok                 bool
	}{
		"all is well":               {"pass TestA\nskip TestB\npass", "", "1 passed, 1 skipped, 0 failed\n", true},
		"nothing ran":               {"", "", "0 passed, 0 skipped, 0 failed\n", false},
		"a part failed":             {"fail TestA/one\nfail TestA\npass TestB\nfail", "", "FAIL p TestA\nFAIL p TestA/one\n1 passed, 0 skipped, 2 failed\n", false},
		"a test did not end":        {"run TestA\npass TestB\nfail", "", "FAIL p TestA (did not end)\n1 passed, 0 skipped, 1 failed\n", false},
		"a package fails by itself": {"pass TestA\nfail", "", "FAIL package p\n1 passed, 0 skipped, 1 failed\n", false},
		"passes when repeated":      {again, "", "NOTE p TestA passed only when repeated\nadd to NOTES: TODAY COMMIT p TestA\n1 passed, 0 skipped, 0 failed\n", true},
		"does so for the second time": {again, "2026-11-01 abc p TestA\n",
			"FAIL p TestA passed only when repeated, for the second time (the first: 2026-11-01 abc): find the cause\n1 passed, 0 skipped, 1 failed\n", false},
		"a damaged list of notes":  {"pass TestA", "2026-11-01 p TestA\n", "FAIL NOTES: 2026-11-01 p TestA: want DATE COMMIT PACKAGE TEST\n1 passed, 0 skipped, 1 failed\n", false},
		"is skipped when repeated": {"fail TestA\nskip TestA\npass TestB", "", "FAIL p TestA\n1 passed, 0 skipped, 1 failed\n", false},
		"a note of a guest, on any kernel": {"TestA:     a_test.go:3: NOTE: TestA/6.12/b: passed only when repeated\npass TestA", "",
			"NOTE p TestA/b passed only when repeated in its guest\nadd to NOTES: TODAY COMMIT p TestA/b\n1 passed, 0 skipped, 0 failed\n", true},
		"two notes of a guest": {"TestA: NOTE: TestA/6.12/b: x\nTestA: NOTE: TestA/7.3/b: x\npass TestA", "",
			"NOTE p TestA/b passed only when repeated in its guest\nadd to NOTES: TODAY COMMIT p TestA/b\n" +
				"FAIL p TestA/b passed only when repeated, for the second time (the first: in this run): find the cause\n1 passed, 0 skipped, 1 failed\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, ok := count(t, c.story, c.known)
			if diff := cmp.Diff(c.want, got); diff != "" || ok != c.ok {
				t.Errorf("ok %v, want %v; summary (-want +got):\n%s", ok, c.ok, diff)
			}
		})
	}
}

func TestSkippedTestsAreListedByTheirPackage(t *testing.T) {
	if _, got, _ := count(t, "skip TestB/one\nskip TestB/two\nskip TestA\npass TestC\nskip", ""); got != "tenon.sh/tenon/p TestA\ntenon.sh/tenon/p TestB\n" {
		t.Errorf("the list is %q", got)
	}
}
