// Package tenon_test checks the architecture: it parses the sources and fails
// if they violate the tables in this file.
package tenon_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// folders is the order of the folders, which follows the flow of a value. A
// package imports packages of its own folder and of those that its row lists; a
// row lists only folders above it. The folders of internal stand here without
// that prefix.
var folders = []struct{ name, uses string }{
	{"model", ""},
	{"decide", "model"},
	{"kernel", "model"},
	{"listen", ""},
	{"table", ""},
	{"machine", "model decide kernel"},
	{"runtimes", "decide kernel"},
	{"config", "model decide"},
	{"api", "model"},
	{"cluster", "model decide listen table runtimes config api"},
	{"agent", "model decide kernel listen table machine runtimes config api cluster"},
	{"examples", ""},
	{"lab", "model decide kernel table machine config agent examples"},
	{"outlook", "model decide table lab/chart lab/page lab/textlayout"},
	{"cmdline", "agent"},
	{"cmd", "model decide kernel cmdline listen table machine runtimes config api cluster agent lab outlook"},
	{"scheduler", "model decide cmdline api cluster lab/stat"},
	{"deploy", ""},
	{"test", "model decide kernel machine runtimes config api cluster agent examples lab scheduler deploy"},
}

// purePackages have no effects: no files, no network, no goroutines, no
// channels, no clock, and no package variable that is assigned to. An entry with
// "/..." counts for all packages below, too.
const purePackages = `model/... decide/... machine/knob
	cluster/contracttext cluster/quantity cluster/past cluster/kube cluster/stored cluster/tenant cluster/admission
	lab/stat`

// pureImports is the part of the standard library that has no effects, and the
// packages of other modules that contain values and no clients.
const pureImports = `cmp encoding/json errors fmt iter maps math math/big math/bits math/rand/v2 slices sort strconv
	strings time gonum.org/v1/gonum/... k8s.io/api/... k8s.io/apimachinery/pkg/...`

// outside lists the foreign modules that only some packages may import. A
// privileged agent must not link plots or load generators, and a tool for one
// machine must not link a Kubernetes client. Tests may import all.
var outside = map[string]string{
	"charm.land/...":                       "agent/top",
	"github.com/HdrHistogram/...":          "lab/...",
	"github.com/charmbracelet/...":         "agent/top",
	"github.com/cilium/ebpf/...":           "kernel/... machine/capability",
	"github.com/containerd/containerd/...": "runtimes/...",
	"github.com/containerd/nri/...":        "runtimes/...",
	"github.com/coreos/...":                "cmd/tenond",
	"github.com/go-logr/...":               "cluster/...",
	"github.com/google/licensecheck/...":   "deploy/...",
	"github.com/klauspost/compress/...":    "lab/...",
	"github.com/opencontainers/...":        "deploy/...",
	"github.com/prometheus/...":            "cluster/... agent/scrape agent/telemetry",
	"github.com/spf13/...":                 "cmdline cmd/... scheduler/cmd/...",
	"go.yaml.in/yaml/...":                  "config/... cmdline cluster/translate",
	"gonum.org/...":                        "decide/trials/... lab/stat",
	"google.golang.org/...":                "runtimes/...",
	"k8s.io/...":                           "api/... cluster/... agent/cluster cmd/kubectl-tenon cmd/tenon-manager cmd/tenond scheduler/...",
	"k8s.io/kubernetes/...":                "scheduler/cmd/... scheduler/inprocess scheduler/quality", // so that any scheduler can contain the plugin
	"oras.land/...":                        "deploy/push",
	"sigs.k8s.io/...":                      "cluster/... cmd/kubectl-tenon cmd/tenon-manager deploy/push",
}

const (
	ourModule = "tenon.sh/tenon/"
	internal  = "internal/"
)

// A room is one package, as parsed from its sources.
type room struct {
	synopsis string   // first sentence of the package comment
	imports  []string // import paths, as the file has them
	impure   []string // effects that a pure package must not have, with their places
}

// within says whether a list of paths has this one, or one above it with "/...".
func within(name, list string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(entry string) bool {
		root, all := strings.CutSuffix(entry, "/...")
		return name == root || all && strings.HasPrefix(name, root+"/")
	})
}

// ownPackage returns the name of a package of this repository without the parts
// that all have.
func ownPackage(imp string) (string, bool) {
	own, is := strings.CutPrefix(imp, ourModule)
	return strings.TrimPrefix(own, internal), is
}

// TestArchitecture parses the sources itself and does not run go list, because
// the test cache tracks the files that a test opens, but not those of a child
// process.
func TestArchitecture(t *testing.T) {
	uses, above := map[string]string{}, ""
	for _, f := range folders {
		for _, used := range strings.Fields(f.uses) {
			if !within(used, above) {
				t.Errorf("%s lists %s, which is not above it", f.name, used)
			}
		}
		uses[f.name] = strings.ReplaceAll(f.uses+" "+f.name+" ", " ", "/... ")
		above += f.name + "/... "
	}
	rooms := readRooms(t)
	for pkg, r := range rooms {
		folder, _, _ := strings.Cut(pkg, "/")
		if uses[folder] == "" {
			t.Errorf("no rule says what %s may import", pkg)
		}
		if r.synopsis == "" {
			t.Errorf("%s has no package comment", pkg)
		}
		if rest, ok := strings.CutPrefix(r.synopsis, "Package "); ok && !strings.HasPrefix(rest, path.Base(pkg)+" ") {
			t.Errorf("%s: the package comment has another name: %s", pkg, r.synopsis)
		}
		pure := within(pkg, purePackages)
		for _, imp := range r.imports {
			own, isOwn := ownPackage(imp)
			if isOwn && !within(own, uses[folder]) {
				t.Errorf("%s must not import %s", pkg, own)
			}
			if isOwn {
				continue
			}
			if pure && !within(imp, pureImports) {
				t.Errorf("%s is pure and must not import %s", pkg, imp)
			}
			for modules, who := range outside {
				if within(imp, modules) && !within(pkg, who+" test/...") {
					t.Errorf("%s must not import %s", pkg, imp)
				}
			}
		}
		if pure && len(r.impure) > 0 {
			t.Errorf("%s is pure: %s", pkg, strings.Join(r.impure, ", "))
		}
	}
	for _, entry := range strings.Fields(purePackages) {
		if _, all := strings.CutSuffix(entry, "/..."); !all && rooms[entry] == nil {
			t.Errorf("%s is in the list of pure packages but not in the tree", entry)
		}
	}
	if len(rooms) < 80 {
		t.Errorf("found %d packages: the test looks in the wrong place", len(rooms))
	}
}

// readRooms parses every package below the root. In a folder with only test
// programs the test files count, too, because they contain the imports.
func readRooms(t *testing.T) map[string]*room {
	t.Helper()
	rooms := map[string]*room{}
	eachGoFile(t, ".", func(name string, f *ast.File, _ *token.FileSet) {
		isTest, pkg := strings.HasSuffix(name, "_test.go"), packageOf(name)
		if pkg == "." || isTest && !strings.HasPrefix(pkg, "test/") {
			return
		}
		r := rooms[pkg]
		if r == nil {
			r = &room{}
			rooms[pkg] = r
		}
		if f.Doc != nil && (r.synopsis == "" || !isTest) {
			r.synopsis = new(doc.Package).Synopsis(f.Doc.Text())
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			r.imports = append(r.imports, imp)
		}
		if !isTest {
			r.impure = append(r.impure, effectsOf(filepath.Base(name), f)...)
		}
	})
	return rooms
}

func packageOf(file string) string {
	return strings.TrimPrefix(path.Dir(filepath.ToSlash(file)), internal)
}

// effectsOf lists the effects in f that a pure package must not have.
func effectsOf(name string, f *ast.File) (found []string) {
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc"}
	assigned := func(e ast.Expr) {
		if v := packageVariable(e, f); v != "" {
			found = append(found, name+" assigns to the package variable "+v)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, name+" starts a goroutine")
		case *ast.ChanType:
			found = append(found, name+" has a channel")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
				found = append(found, name+" asks for the time with time."+n.Sel.Name)
			}
		case *ast.IncDecStmt:
			assigned(n.X)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				assigned(left)
			}
		}
		return true
	})
	return found
}

// packageVariable returns the name of the package's variable to which an
// assignment to e writes, or "". A name that its file does not declare is one of
// another file.
func packageVariable(e ast.Expr, f *ast.File) string {
	switch e := e.(type) {
	case *ast.IndexExpr:
		return packageVariable(e.X, f)
	case *ast.SelectorExpr:
		return packageVariable(e.X, f)
	case *ast.Ident:
		// The type checker, which replaces Obj, needs every import compiled.
		if e.Name != "_" && (e.Obj == nil || e.Obj == f.Scope.Lookup(e.Name)) {
			return e.Name
		}
	}
	return ""
}

// A source is a parsed Go file.
type source struct {
	name string
	file *ast.File
}

var fset = token.NewFileSet()

// sources parses every Go file once, also in nested modules, except in folders
// named testdata, and in modules that only pin the versions of other projects'
// programs (test/cluster/build).
var sources = sync.OnceValues(func() (all []source, err error) {
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "bin", "build"}, d.Name())) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		all = append(all, source{name, f})
		return err
	})
	return all, err
})

// eachGoFile passes every Go file in and below root to a function.
func eachGoFile(t *testing.T, root string, use func(name string, f *ast.File, fset *token.FileSet)) {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if root == "." || strings.HasPrefix(s.name, filepath.FromSlash(root+"/")) {
			use(s.name, s.file, fset)
		}
	}
}
