// Package tenon_test keeps the architecture: it reads the sources and fails on
// what the table below does not allow.
package tenon_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arch is the architecture of this repository: each package under internal,
// whether it is pure, and which packages of this module it may import. It is
// the table of ARCHITECTURE.md as a test.
//
// A pure package has no effects. It may import only what its row names and the
// part of the standard library in pureStd, and it may not ask for the time: no
// files, no network, no goroutines, no logs.
var arch = []struct {
	pkg  string
	pure bool
	uses string
}{
	// Words.
	{"unit", true, ""},
	{"node", true, "unit"},
	// Thought.
	{"trend", true, "unit"},
	{"pick", true, "unit node"},
	{"plan", true, "unit node"},
	{"policy", true, "unit node trend pick plan"},
	{"match", true, "unit node"},
	{"tick", true, "unit node plan"},
	// Formats.
	{"proc", false, "unit"},
	{"cgroup", false, "unit"},
	{"task", false, "unit"},
	{"probe", false, "unit"},
	{"scx", false, "unit"},
	{"trace", false, "unit"},
	{"container", false, ""},
	{"resctrl", false, "unit"},
	{"nri", false, ""},
	{"apiserver", false, ""},
	{"kubelet", false, ""},
	// Adapters.
	{"journal", false, "unit node plan"},
	{"host", false, "unit node plan proc cgroup task resctrl probe scx journal"},
	{"sim", false, "unit node trend plan"},
	{"lease", false, "unit node plan task"},
	{"config", false, "unit node match policy"},
	{"kube", true, "unit node config"},
	{"admission", true, "unit node config kube"},
	{"survey", false, "unit node kube"},
	{"record", false, "unit node plan policy tick"},
	{"control", false, "unit node trend plan tick record"},
	{"telemetry", false, "unit node plan tick"},
	{"report", false, "unit node plan policy tick apiserver"},
	{"top", false, "unit node record control"},
	// Loops.
	{"agent", false, "unit node plan policy tick"},
	{"daemon", false, "unit node plan policy match config agent tick host cgroup proc container journal lease launch record control telemetry kube kubelet apiserver nri report"},
	{"launch", false, "unit node plan policy agent tick host cgroup proc task"},
	{"manager", false, "unit node policy config kube admission"},
	// Around.
	{"lab", false, "unit node plan policy agent tick host cgroup proc task trace record lab/load lab/stat lab/report"},
	{"lab/load", false, "unit"},
	{"lab/stat", true, ""},
	{"lab/report", false, "unit lab/load lab/stat"},
	// Tests.
	{"apiserver/apitest", false, ""},
	{"conformance", false, "unit node plan"},
}

const (
	module  = "tenon.sh/tenon/internal/"
	pureStd = "cmp encoding/json errors fmt iter maps math math/bits math/rand/v2 slices sort strconv strings time"
)

// outside lists the modules that only some packages may use. A privileged
// agent must not link plots or load generators.
var outside = map[string]string{
	"github.com/HdrHistogram/":  "lab lab/load lab/report",
	"gonum.org/":                "lab/stat lab/report",
	"github.com/spf13/cobra":    "",
	"github.com/cilium/ebpf":    "host probe scx",
	"go.yaml.in/yaml/":          "config",
	"github.com/coreos/":        "",
	"github.com/prometheus/":    "telemetry manager",
	"charm.land/":               "top",
	"github.com/charmbracelet/": "top",
	"github.com/containerd/":    "container nri",
	"google.golang.org/":        "container",
	"k8s.io/":                   "kube admission survey apiserver kubelet report daemon apiserver/apitest manager",
	"sigs.k8s.io/":              "manager",
}

type source struct {
	imports    []string
	documented bool
	clock      []string // where it asks for the time
}

// TestArchitecture reads the sources itself instead of running go list: the
// test cache sees files that a test opens, but not those that a child opens.
func TestArchitecture(t *testing.T) {
	tree := read(t, "internal")
	for _, rule := range arch {
		src := tree[rule.pkg]
		if src == nil {
			t.Errorf("%s stands in the table but not in the tree", rule.pkg)
			continue
		}
		delete(tree, rule.pkg)
		if !src.documented {
			t.Errorf("%s has no package comment", rule.pkg)
		}
		if rule.pure && len(src.clock) > 0 {
			t.Errorf("%s is pure and must not ask for the time: %v", rule.pkg, src.clock)
		}
		for _, imp := range src.imports {
			checkImport(t, rule.pkg, rule.pure, strings.Fields(rule.uses), imp)
		}
	}
	for pkg := range tree {
		t.Errorf("%s stands in the tree but not in the table", pkg)
	}
}

func checkImport(t *testing.T, pkg string, pure bool, uses []string, imp string) {
	t.Helper()
	own, isOwn := strings.CutPrefix(imp, module)
	gonum := strings.HasPrefix(imp, "gonum.org/v1/gonum/") && pkg == "lab/stat"
	api := pkg == "kube" && (strings.HasPrefix(imp, "k8s.io/api/") || strings.HasPrefix(imp, "k8s.io/apimachinery/pkg/api/")) // values
	api = api || pkg == "admission" && (strings.HasPrefix(imp, "k8s.io/api/") || strings.HasPrefix(imp, "k8s.io/apimachinery/pkg/") || strings.HasPrefix(imp, "tenon.sh/tenon/api/"))
	switch {
	case isOwn && !slices.Contains(uses, own):
		t.Errorf("%s must not import %s", pkg, own)
	case !isOwn && pure && !gonum && !api && !slices.Contains(strings.Fields(pureStd), imp):
		t.Errorf("%s is pure and must not import %s", pkg, imp)
	}
	for prefix, who := range outside {
		if strings.HasPrefix(imp, prefix) && !slices.Contains(strings.Fields(who), pkg) {
			t.Errorf("%s must not import %s", pkg, imp)
		}
	}
}

// read parses every package below root that has sources other than tests.
func read(t *testing.T, root string) map[string]*source {
	t.Helper()
	tree := map[string]*source{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		if tree[pkg] == nil {
			tree[pkg] = &source{}
		}
		src := tree[pkg]
		src.documented = src.documented || f.Doc != nil
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			src.imports = append(src.imports, imp)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc"}, sel.Sel.Name) {
					src.clock = append(src.clock, filepath.Base(path))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestNamesThatSayNothing keeps out the folder names under which anything can
// be put and nothing be found.
func TestNamesThatSayNothing(t *testing.T) {
	banned := []string{"util", "utils", "common", "helpers", "types", "base", "core", "framework", "misc", "shared"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(banned, d.Name()) {
			t.Errorf("folder %s says nothing about what is in it", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFilesStayReadable keeps a file to one topic. Split by meaning, not by
// length, when this fails.
func TestFilesStayReadable(t *testing.T) {
	const most = 420
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.HasPrefix(string(text), "// Code generated ") {
			return err // nobody reads it
		}
		if n := strings.Count(string(text), "\n"); n > most {
			t.Errorf("%s has %d lines, more than %d", path, n, most)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestArchitecturePageNamesEveryPackage keeps ARCHITECTURE.md true.
func TestArchitecturePageNamesEveryPackage(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range arch {
		if !strings.Contains(string(page), "`"+rule.pkg+"`") {
			t.Errorf("ARCHITECTURE.md does not name %s", rule.pkg)
		}
	}
}
