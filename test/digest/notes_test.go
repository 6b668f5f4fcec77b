package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheListOfNotesIsSound(t *testing.T) {
	if _, err := parseNotes(notedBefore); err != nil {
		t.Error(err)
	}
}

func TestNotesAreReadByTest(t *testing.T) {
	got, err := parseNotes("# date commit\n\n2026-11-23 0abc123 test/vm TestA/b # busy\n2026-11-24 0abc124 . TestA\n")
	want := map[string]string{"test/vm TestA/b": "2026-11-23 0abc123", ". TestA": "2026-11-24 0abc124"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, notes (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"2026-11-23 TestA", "yesterday 0abc123 test/vm TestA", "2026-11-23 a p TestA\n2026-11-24 b p TestA"} {
		if _, err := parseNotes(text); err == nil {
			t.Errorf("%q is read without an error", text)
		}
	}
}

func TestATestIsTheSameOnAllKernels(t *testing.T) {
	got := nameOf("tenon.sh/tenon/test/vm", "TestA/6.18/internal/x/TestB/1.5_CPUs")
	if want := "test/vm TestA/internal/x/TestB/1.5_CPUs"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
}

func TestTheSecondNoteOfATestFails(t *testing.T) {
	const fails, passes = "FAIL TestA\n: FAIL\nFAIL ", "PASS TestA\n: PASS\nPASS "
	guest := func(series string) string {
		return "TestV:     a_test.go:3: NOTE: TestV/" + series + "/TestG: passed only when repeated\n"
	}
	for name, c := range map[string]struct {
		first string
		again map[string]string
		known map[string]string
		ok    bool
		want  string // a line of the summary
	}{
		"the first": {fails, map[string]string{"-run=^TestA$": passes}, map[string]string{"p TestB": "2026-11-23 a"}, true,
			"add to test/digest/notes.txt: TODAY p TestA"},
		"the second": {fails, map[string]string{"-run=^TestA$": passes}, map[string]string{"p TestA": "2026-11-23 a"}, false,
			"    | passed only when repeated, for the second time (the first: 2026-11-23 a): find the cause"},
		"the second, in a guest": {guest("6.18") + "PASS TestV\n: PASS\nPASS ", nil, map[string]string{"p TestV/TestG": "2026-11-23 a"}, false,
			"FAIL p TestV/TestG"},
		"two in one run": {guest("6.18") + guest("7.3") + "PASS TestV\n: PASS\nPASS ", nil, nil, false,
			"    | passed only when repeated, for the second time (the first: in this run): find the cause"},
		"two tests": {guest("6.18") + strings.Replace(guest("7.3"), "TestG", "TestH", 1) + "PASS TestV\n: PASS\nPASS ", nil, nil, true,
			"add to test/digest/notes.txt: TODAY p TestV/TestH"},
		"a listed test that passes": {passes, nil, map[string]string{"p TestA": "2026-11-23 a"}, true, "1 passed, 0 skipped, 0 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			summary, ok := digestOf(t, c.first, c.again, c.known)
			if ok != c.ok || !strings.Contains("\n"+summary, "\n"+c.want+"\n") {
				t.Errorf("ok %v, want %v and a line %q in:\n%s", ok, c.ok, c.want, summary)
			}
		})
	}
}
