package tenon_test

import (
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The limits of the house. What is over one of them when the limit was set
// stands in the list beside it with its size of that day: it may shrink, and
// its entry must shrink with it.
const (
	mostFileLines     = 420
	mostPackageLines  = 2000
	mostTypeMethods   = 40
	mostFunctionLines = 100
)

// TestNamesThatSayNothing keeps out the folder names under which anything can
// be put and nothing be found.
func TestNamesThatSayNothing(t *testing.T) {
	banned := []string{"util", "utils", "common", "helpers", "types", "base", "core", "framework", "misc", "shared"}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(banned, d.Name()) {
			t.Errorf("folder %s says nothing about what is in it", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// largePackages are the packages of more than mostPackageLines lines. Each number
// is rounded up to 50, so that a change of a few lines need not come here.
var largePackages = map[string]int{
	"agent/daemon":        3300,
	"cluster/manager":     2750,
	"cmd/tenon":           2250,
	"config":              3300,
	"decide/policy":       3900,
	"kernel/cgroup":       3650,
	"lab":                 4050,
	"lab/load":            2300,
	"lab/report":          2150,
	"machine/conformance": 2750,
	"machine/sim":         2850,
	"model/node":          2500,
}

// largeTypes are the types of more than mostTypeMethods methods.
var largeTypes = map[string]int{
	"kernel/cgroup.Tree": 90,
	"machine/sim.Node":   73,
}

// longFunctions are the functions of more than mostFunctionLines lines. Those
// that are one table may stay.
var longFunctions = map[string]int{
	"machine/conformance.cpusetFacts": 130,
	"machine/conformance.groupFacts":  111,
	"machine/conformance.maxFacts":    128,
	"machine/sim.controlRules":        119,
	"machine/sim.cpuRules":            126,
	"machine/sim.ioRules":             113,
}

// TestSizes keeps files, packages, types and functions to one topic. Split by
// meaning, not by length, when this fails.
func TestSizes(t *testing.T) {
	lines, methods, functions := map[string]int{}, map[string]int{}, map[string]int{}
	for _, root := range roots {
		eachGoFile(t, root, func(name string, f *ast.File, fset *token.FileSet) {
			if strings.HasSuffix(name, "_test.go") || ast.IsGenerated(f) {
				return
			}
			pkg := strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), internal)
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			n := strings.Count(string(text), "\n")
			if n > mostFileLines {
				t.Errorf("%s has %d lines, more than %d", name, n, mostFileLines)
			}
			lines[pkg] += n
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				of := pkg + "." + fn.Name.Name
				if fn.Recv != nil {
					recv := receiver(fn)
					methods[pkg+"."+recv]++
					of = pkg + "." + recv + "." + fn.Name.Name
				}
				functions[of] = fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			}
		})
	}
	keepWithin(t, "package", "lines", lines, mostPackageLines, largePackages)
	keepWithin(t, "type", "methods", methods, mostTypeMethods, largeTypes)
	keepWithin(t, "function", "lines", functions, mostFunctionLines, longFunctions)
}

func receiver(fn *ast.FuncDecl) string {
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return "?"
		}
	}
}

// keepWithin fails for each size over the limit that is not in the list of
// exceptions, or is larger than there, and for each exception that is not
// needed any more or could be lower by a tenth.
func keepWithin(t *testing.T, kind, unit string, sizes map[string]int, most int, exceptions map[string]int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		size, limit := sizes[name], most
		if e, ok := exceptions[name]; ok {
			limit = e
			if size <= most {
				t.Errorf("%s %s has %d %s now: take it out of the exceptions", kind, name, size, unit)
			} else if size*10 < e*9 {
				t.Errorf("%s %s has %d %s now: lower its exception, which is %d", kind, name, size, unit, e)
			}
		}
		if size > limit {
			t.Errorf("%s %s has %d %s, more than %d", kind, name, size, unit, limit)
		}
	}
	for name := range exceptions {
		if _, ok := sizes[name]; !ok {
			t.Errorf("%s %s is an exception, but there is none of that name", kind, name)
		}
	}
}
