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

// The size limits. Each exception is in a list, with the size that it had when
// the limit was set. If the exception becomes smaller, its entry must become
// smaller, too.
const (
	maxFileLines     = 420
	maxPackageLines  = 2000
	maxTypeMethods   = 40
	maxFunctionLines = 100
)

// TestNamesThatSayNothing refuses folder names that fit any content.
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

// largePackages lists the packages of more than maxPackageLines lines. The
// numbers are rounded up to a multiple of 50, so that a change of a few lines
// does not change this list.
var largePackages = map[string]int{
	"agent/control":       2050,
	"cluster/kube":        2050,
	"cluster/manager":     2300,
	"cmd/tenon":           2250,
	"config":              3350,
	"kernel/cgroup":       3850,
	"lab/report":          2400,
	"lab/testbed":         2050,
	"machine/conformance": 2800,
	"machine/sim":         2850,
	"model/node":          2600,
}

// largeTypes lists the types of more than maxTypeMethods methods.
var largeTypes = map[string]int{
	"kernel/cgroup.Tree":      90,
	"machine/journal.Journal": 43,
	"machine/sim.Node":        73,
}

// longFunctions lists the functions of more than maxFunctionLines lines. A
// function that is a single table may stay long.
var longFunctions = map[string]int{
	"machine/conformance.cpusetFacts": 130,
	"machine/conformance.groupFacts":  111,
	"machine/conformance.maxFacts":    130,
	"machine/sim.controlRules":        119,
	"machine/sim.cpuRules":            126,
	"machine/sim.ioRules":             113,
}

// TestSizes limits the size of files, packages, types and functions, so that
// each has one topic. If it fails, split by topic and not by length.
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
			if n > maxFileLines {
				t.Errorf("%s has %d lines, more than %d", name, n, maxFileLines)
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
	keepWithin(t, "package", "lines", lines, maxPackageLines, largePackages)
	keepWithin(t, "type", "methods", methods, maxTypeMethods, largeTypes)
	keepWithin(t, "function", "lines", functions, maxFunctionLines, longFunctions)
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

// keepWithin fails for each size above the limit (most), unless an exception
// allows that size. It also fails for each exception that is not needed any
// more, or that could be lower by a tenth.
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
			t.Errorf("%s %s has an exception but does not exist", kind, name)
		}
	}
}

// TestParentDeathSignalsComeFromLockedThreads checks that each function that
// sets Pdeathsig locks its thread, or starts a goroutine that does. The kernel
// sends the signal when the thread that started the child ends, and Go ends
// threads that it does not need, or whose attributes a goroutine has changed.
func TestParentDeathSignalsComeFromLockedThreads(t *testing.T) {
	for _, root := range roots {
		eachGoFile(t, root, func(name string, f *ast.File, fset *token.FileSet) {
			locking := map[string]bool{} // functions of this file that lock their thread
			for _, decl := range f.Decls {
				if fn, is := decl.(*ast.FuncDecl); is && names(fn)["LockOSThread"] {
					locking[fn.Name.Name] = true
				}
			}
			for _, decl := range f.Decls {
				fn, is := decl.(*ast.FuncDecl)
				if !is || !names(fn)["Pdeathsig"] || locking[fn.Name.Name] {
					continue
				}
				starts := false
				ast.Inspect(fn, func(n ast.Node) bool {
					if g, is := n.(*ast.GoStmt); is {
						for callee := range names(g.Call) {
							starts = starts || locking[callee]
						}
					}
					return true
				})
				if !starts {
					t.Errorf("%v: %s sets Pdeathsig, but does not lock its thread: the child may die at any time", fset.Position(fn.Pos()), fn.Name.Name)
				}
			}
		})
	}
}

// names returns the identifiers that stand in a piece of code.
func names(n ast.Node) map[string]bool {
	found := map[string]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, is := n.(*ast.Ident); is {
			found[id.Name] = true
		}
		return true
	})
	return found
}

// TestOneToolchain checks that all modules name the same toolchain. A machine that
// fetches it then compiles what several modules use once.
func TestOneToolchain(t *testing.T) {
	named := map[string][]string{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return fs.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		version := "none"
		for line := range strings.Lines(string(text)) {
			if v, is := strings.CutPrefix(line, "toolchain "); is {
				version = strings.TrimSpace(v)
			}
		}
		named[version] = append(named[version], file)
		return nil
	})
	if err != nil || len(named) != 1 || named["none"] != nil {
		t.Errorf("the modules name several toolchains, or none: %v, %v", named, err)
	}
}
