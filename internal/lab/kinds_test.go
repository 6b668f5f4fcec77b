package lab

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/memory"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/reaction"
)

// TestEveryKindHasARow compares Kinds with the constants Kind and Kind… of the
// packages in the folders below. The function Open or Open… of the same package
// reads the data of the kind.
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

// TestAReportWithoutRawDataKeepsTheResult removes or empties the raw data of an
// experiment of each kind. The report must fail and name the data. It must not
// replace the results by empty ones.
func TestAReportWithoutRawDataKeepsTheResult(t *testing.T) {
	empty := map[string][]string{
		"jobs.csv":    {"", "Host,Type,Concurrency,CPU,Memory,JobID,PodID,JobPodID,DockerID,TimeIn,TimeOut,Source\n"},
		"runs.jsonl":  {"", "{\"index\": 1, \"blo"},
		"steps.jsonl": {"", "{\"index\": 1, \"blo"},
		"runs":        {},
	}
	data := map[string]string{
		colocation.Kind: "runs", colocation.KindKernelQOS: "runs", memory.Kind: "runs", concurrency.Kind: "jobs.csv",
		pinning.Kind: "runs.jsonl", reaction.Kind: "steps.jsonl",
	}
	for kind := range Kinds {
		name := data[kind]
		fails := func(dir, want string) {
			t.Helper()
			_, err := Kinds.Rebuild(dir)
			if err == nil || !strings.Contains(err.Error(), name+" "+want) {
				t.Errorf("kind %q: error %v, want %q", kind, err, name+" "+want)
			}
			for _, file := range []string{"result.json", "report.html"} {
				if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(text) != "good" {
					t.Errorf("kind %q: %s has %q (%v)", kind, file, text, err)
				}
			}
		}
		dir := t.TempDir()
		put := func(name, text string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		put("experiment.json", `{"schema": 1, "kind": "`+kind+`"}`)
		put("result.json", "good")
		put("report.html", "good")
		fails(dir, "is missing")
		for _, text := range empty[name] {
			put(name, text)
			fails(dir, "has no complete run")
		}
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
