package tenon_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// maxTwins is the number of pairs of structs that hold the same fields in two
// packages. It may only fall.
const maxTwins = 108

// TestOneTruthHasOneType finds structs of different packages that share at least
// four field names, and half of the fields of the smaller one. Such a pair is
// mostly one fact with two types, which a third place must convert: use one type,
// or embed it. The names of some pairs agree by chance, so their number counts.
func TestOneTruthHasOneType(t *testing.T) {
	type structure struct {
		pkg, name string
		fields    map[string]bool
	}
	var all []structure
	eachGoFile(t, ".", func(file string, f *ast.File, _ *token.FileSet) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, _ := n.(*ast.TypeSpec)
			if spec == nil || strings.HasSuffix(file, "_test.go") || ast.IsGenerated(f) {
				return true
			}
			if s, is := spec.Type.(*ast.StructType); is {
				fields := map[string]bool{}
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						fields[strings.ToLower(name.Name)] = true
					}
				}
				all = append(all, structure{packageOf(file), spec.Name.Name, fields})
			}
			return true
		})
	})
	var twins []string
	for i, a := range all {
		for _, b := range all[:i] {
			both := maps.Clone(a.fields)
			maps.DeleteFunc(both, func(name string, _ bool) bool { return !b.fields[name] })
			if a.pkg != b.pkg && len(both) >= 4 && 2*len(both) >= min(len(a.fields), len(b.fields)) {
				twins = append(twins, fmt.Sprintf("%s.%s and %s.%s: %s", a.pkg, a.name, b.pkg, b.name, strings.Join(slices.Sorted(maps.Keys(both)), " ")))
			}
		}
	}
	slices.Sort(twins)
	if len(twins) != maxTwins {
		t.Errorf("%d pairs of structs share their fields, and maxTwins is %d; it may only fall:\n%s", len(twins), maxTwins, strings.Join(twins, "\n"))
	}
}

// sentencesRead lists the files that cut or match a sentence of Tenon, with the
// number of places. It may only shrink.
var sentencesRead = map[string]int{}

// foreignSentences lists the files that read what another program says, which
// has no code.
var foreignSentences = map[string]string{
	"cmd/kubectl-tenon/dryrun.go":       "the API server refuses by one status, for several reasons",
	"internal/config/syntax/json.go":    "the library names a misspelt field in its text only",
	"internal/config/syntax/yaml.go":    "the library names the line in its text only",
	"internal/lab/kubectl/admission.go": "an event of the API server has only a text",
	"internal/lab/kubectl/lease.go":     "kubectl prints the API server's answer",
	"internal/lab/kubectl/space.go":     "kubectl prints the API server's answer",
}

// TestNoSentenceIsRead finds calls of package strings that cut or match a value
// whose name says that it is a sentence for people. A decision hands on a code
// and numbers, and these are what other code reads.
func TestNoSentenceIsRead(t *testing.T) {
	sentences := strings.Fields("why reason reasons message problem fault refusal error warning warnings because how note notes verdict trouble words sentence says")
	functions := strings.Fields("Contains Count Cut CutPrefix CutSuffix EqualFold HasPrefix HasSuffix Index LastIndex Split SplitN SplitSeq TrimPrefix TrimSuffix")
	read := map[string][]string{}
	eachGoFile(t, ".", func(file string, f *ast.File, fset *token.FileSet) {
		ast.Inspect(f, func(n ast.Node) bool {
			call, _ := n.(*ast.CallExpr)
			if call == nil || strings.HasSuffix(file, "_test.go") || foreignSentences[file] != "" {
				return true
			}
			name := strings.TrimPrefix(types.ExprString(call.Fun), "strings.")
			if !slices.Contains(functions, name) {
				return true
			}
			for id := range names(call) {
				if slices.Contains(sentences, strings.ToLower(id)) {
					read[file] = append(read[file], fmt.Sprintf("%v: %s", fset.Position(call.Pos()), types.ExprString(call)))
					break
				}
			}
			return true
		})
	})
	for file, places := range read {
		if len(places) > sentencesRead[file] {
			t.Errorf("a sentence is read, not a code, in %s", strings.Join(places, " and "))
		}
	}
	for file, n := range sentencesRead {
		if len(read[file]) < n {
			t.Errorf("%s reads %d sentences now: lower its entry, which is %d", file, len(read[file]), n)
		}
	}
	for file := range foreignSentences {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
