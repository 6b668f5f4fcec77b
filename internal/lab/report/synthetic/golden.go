package synthetic

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// CheckGolden compares got with a file below testdata.
func CheckGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update makes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update if it should:\n%s", path, diff)
	}
}

// CheckTable compares the rows of a table (got) with rows in a Markdown file.
// These rows follow the head of the first table after the marker <!-- NAME -->.
// They end before the next line that is not a row.
func CheckTable(t *testing.T, path, name, got string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(text), "<!-- "+name+" -->\n")
	if !ok {
		t.Fatalf("%s has no marker <!-- %s -->", path, name)
	}
	lines := strings.SplitAfter(after, "\n")
	head, rows := strings.Join(lines[:min(2, len(lines))], ""), ""
	rest := lines[min(2, len(lines)):]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "|") {
		rows, rest = rows+rest[0], rest[1:]
	}
	if *update && rows != got {
		text := before + "<!-- " + name + " -->\n" + head + got + strings.Join(rest, "")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(rows, got); diff != "" {
		t.Errorf("table %s of %s differs (-want +got); go test -update if it should:\n%s", name, path, diff)
	}
}
