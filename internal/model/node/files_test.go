package node

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryFileHasARow parses the sources of this package. Each constant of
// type File must have a row, because a File without a row could not be parsed
// as a knob.
func TestEveryFileHasARow(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, name := range sources {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, is := n.(*ast.ValueSpec)
			if !is {
				return true
			}
			if typ, is := v.Type.(*ast.Ident); !is || typ.Name != "File" {
				return true
			}
			text := strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`)
			if named++; !slices.Contains(AllFiles, File(text)) {
				t.Errorf("%s (%s) is not in fileRows", v.Names[0].Name, text)
			}
			return true
		})
	}
	if named != len(AllFiles) || len(rowOf) != len(fileRows) {
		t.Errorf("%d constants, %d rows, %d of them different", named, len(fileRows), len(rowOf))
	}
}

// TestMissingFiles checks that MissingFiles names the missing and the unknown
// entries of a table.
func TestMissingFiles(t *testing.T) {
	table := map[File]bool{}
	for _, f := range AllFiles {
		table[f] = true
	}
	if wrong := MissingFiles(table); wrong != "" {
		t.Error(wrong)
	}
	delete(table, FileSlice)
	table["cpu.color"] = true
	if wrong := MissingFiles(table); !strings.Contains(wrong, "slice") || !strings.Contains(wrong, "cpu.color") {
		t.Errorf("one missing and one unknown: %q", wrong)
	}
}
