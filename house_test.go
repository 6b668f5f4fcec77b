package tenon_test

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// TestParentDeathSignalsComeFromLockedThreads checks that each function that
// sets Pdeathsig locks its thread, or starts a goroutine that does. The kernel
// sends the signal when the thread that started the child ends, and Go ends
// threads that it does not need, or whose attributes a goroutine has changed.
func TestParentDeathSignalsComeFromLockedThreads(t *testing.T) {
	eachGoFile(t, ".", func(name string, f *ast.File, fset *token.FileSet) {
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

// TestASummaryBeginsWithAVerb checks the line of each command in the help. A new
// verb gets a place in the list.
func TestASummaryBeginsWithAVerb(t *testing.T) {
	verbs := strings.Fields("Change Check Decide Explain Fit Give Install Keep List Make Measure Narrow Print Publish Put Remove Repeat Run Save Say Show Stop Use")
	found := 0
	eachGoFile(t, "cmd", func(name string, f *ast.File, fset *token.FileSet) {
		ast.Inspect(f, func(n ast.Node) bool {
			kv, _ := n.(*ast.KeyValueExpr)
			if kv == nil {
				return true
			}
			key, _ := kv.Key.(*ast.Ident)
			text, _ := kv.Value.(*ast.BasicLit)
			if key == nil || key.Name != "Short" || text == nil {
				return true
			}
			found++
			if first, _, _ := strings.Cut(strings.Trim(text.Value, "\"`"), " "); !slices.Contains(verbs, first) {
				t.Errorf("%v: the summary of a command begins with %q: want a verb, such as %s", fset.Position(kv.Pos()), first, strings.Join(verbs, ", "))
			}
			return true
		})
	})
	if found < 40 {
		t.Errorf("%d commands have a summary: this test looks in the wrong place", found)
	}
}
