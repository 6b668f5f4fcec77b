package lab

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryKindHasARow compares Kinds with the constants Kind and Kind… of the
// packages below. The data of each kind are read by the function Open or Open…
// of the same package.
func TestEveryKindHasARow(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.CONST {
				maps.Copy(want, kindsIn(t, g, filepath.Dir(name)))
			}
		}
	}
	got := map[string]string{}
	for kind, open := range Kinds {
		name := runtime.FuncForPC(reflect.ValueOf(open).Pointer()).Name()
		got[kind] = strings.TrimPrefix(name, "tenon.sh/tenon/internal/lab/")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Kinds does not have each kind and its function (-constants, +Kinds):\n%s", diff)
	}
}

// kindsIn returns the kinds that the declaration g of a package has, each with
// the name of the function that reads its data.
func kindsIn(t *testing.T, g *ast.GenDecl, pkg string) map[string]string {
	t.Helper()
	kinds := map[string]string{}
	for _, spec := range g.Specs {
		v := spec.(*ast.ValueSpec)
		for i, name := range v.Names {
			suffix, ok := strings.CutPrefix(name.Name, "Kind")
			if !ok || i >= len(v.Values) {
				continue
			}
			text, ok := v.Values[i].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s.%s: want a literal", pkg, name.Name)
			}
			kind, err := strconv.Unquote(text.Value)
			if err != nil {
				t.Fatalf("%s.%s: %v", pkg, name.Name, err)
			}
			kinds[kind] = pkg + ".Open" + suffix
		}
	}
	return kinds
}
