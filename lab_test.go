package tenon_test

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// labShared lists the folders of internal/lab that all experiments share. Every
// other folder is an experiment.
var labShared = map[string]bool{"archive": true, "capacity": true, "chart": true, "claim": true, "harness": true, "jobfiles": true, "jobs": true, "kubectl": true, "labtest": true, "load": true, "meter": true, "nodes": true, "page": true, "pi": true, "report": true, "stat": true, "stepservice": true, "testbed": true, "textlayout": true, "turns": true, "work": true}

// TestExperimentsDoNotImportEachOther checks that experiments are independent:
// code that two of them need belongs in the shared folders.
func TestExperimentsDoNotImportEachOther(t *testing.T) {
	experiment := func(path string) string {
		rest, ok := strings.CutPrefix(path, "internal/lab/")
		name, _, _ := strings.Cut(rest, "/")
		if !ok || labShared[name] || strings.HasSuffix(name, ".go") {
			return ""
		}
		return name
	}
	seen := map[string]bool{}
	eachGoFile(t, "internal/lab", func(name string, f *ast.File, _ *token.FileSet) {
		from := experiment(name)
		seen[from] = true
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			to := experiment(strings.TrimPrefix(path, ourModule))
			if to == "" || to == from {
				continue
			}
			file := strings.TrimPrefix(name, "internal/lab/")
			if from != "" || strings.Contains(file, "/") {
				t.Errorf("%s imports experiment %s", name, to)
			}
		}
	})
	if len(seen) < 4 {
		t.Errorf("experiments %v: want three and the shared folders", seen)
	}
}

// TestReportKnowsNoKinds checks that the report has no branches on the kind of
// an experiment. The differences between kinds belong in their Study or in the
// table of kinds.
func TestReportKnowsNoKinds(t *testing.T) {
	aKind := func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.Ident:
			return strings.EqualFold(e.Name, "kind") || strings.HasPrefix(e.Name, "Kind")
		case *ast.SelectorExpr:
			return strings.HasPrefix(e.Sel.Name, "Kind")
		}
		return false
	}
	files := 0
	eachGoFile(t, "internal/lab/report", func(name string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		files++
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SwitchStmt:
				if n.Tag != nil && aKind(n.Tag) {
					t.Errorf("%v: switch on a kind of experiment", fset.Position(n.Pos()))
				}
			case *ast.BinaryExpr:
				if (n.Op == token.EQL || n.Op == token.NEQ) && (aKind(n.X) || aKind(n.Y)) {
					t.Errorf("%v: comparison of a kind of experiment", fset.Position(n.Pos()))
				}
			case *ast.FuncDecl:
				if strings.HasPrefix(n.Name.Name, "isMemory") {
					t.Errorf("%v: asks for a kind of experiment", fset.Position(n.Pos()))
				}
			}
			return true
		})
	})
	if files == 0 {
		t.Error("no file of lab/report was read")
	}
}
