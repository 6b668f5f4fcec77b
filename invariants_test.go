package tenon_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestInvariantsHaveTests checks that every test that ARCHITECTURE.md names for
// an invariant exists.
func TestInvariantsHaveTests(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, begins := strings.Cut(string(text), "<!-- invariants -->\n")
	list, _, ends := strings.Cut(list, "<!-- invariants end -->")
	if !begins || !ends {
		t.Fatal("ARCHITECTURE.md has no list of invariants")
	}
	tests := map[string]bool{}
	eachGoFile(t, ".", func(name string, f *ast.File, _ *token.FileSet) {
		for _, decl := range f.Decls {
			if fn, is := decl.(*ast.FuncDecl); is && fn.Recv == nil && strings.HasSuffix(name, "_test.go") {
				tests[fn.Name.Name] = true
			}
		}
	})
	rows := strings.Split(strings.TrimSpace(list), "\n")[2:]
	if len(rows) != 15 {
		t.Errorf("%d invariants, want 15", len(rows))
	}
	named := regexp.MustCompile("`(Test[^`]*)`")
	for i, row := range rows {
		columns := strings.Split(row, "|")
		if len(columns) != 5 || strings.TrimSpace(columns[1]) != strconv.Itoa(i+1) {
			t.Errorf("row %d is %q", i+1, row)
			continue
		}
		names := named.FindAllStringSubmatch(columns[3], -1)
		if len(names) == 0 {
			t.Errorf("no test checks invariant %d:%s", i+1, columns[2])
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("invariant %d: there is no %s", i+1, name[1])
			}
		}
	}
}
