package capability_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/blockio"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/capability"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/model/node"
)

// features returns all features that package node names. It parses the source,
// so that no feature can be missing. A virtual machine has this test without the
// source, and gets nil.
func features(t *testing.T) []node.Feature {
	t.Helper()
	var all []node.Feature
	for _, file := range []string{"capability.go", "mechanism.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), "../../model/node/"+file, nil, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, is := n.(*ast.ValueSpec)
			if !is {
				return true
			}
			if typ, is := v.Type.(*ast.Ident); is && typ.Name == "Feature" {
				all = append(all, node.Feature(strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`)))
			}
			return true
		})
	}
	if len(all) < 20 {
		t.Fatalf("package node names only the features %q", all)
	}
	return all
}

// thisMachine returns the running machine.
func thisMachine(t *testing.T) capability.Node {
	t.Helper()
	fs := proc.Default()
	n := capability.Node{FS: fs, Topology: topology.New(fs)}
	if n.Tree, n.NoTree = cgroup.Detect(fs.Proc); n.NoTree != nil {
		n.Tree = nil
	}
	n.Devices, n.Controls = blockio.New(fs, n.Tree), cachectl.New(fs.Proc, n.Tree, nil)
	return n
}

func TestEveryMechanismHasAnAnswerAndAReason(t *testing.T) {
	can := capability.Try(thisMachine(t))
	for _, m := range slices.Sorted(maps.Keys(can)) {
		a := can[m]
		t.Logf("%-22s %-8s %s", m, a.Verdict, a.Why)
		if a.Verdict != node.Yes && a.Verdict != node.No && a.Verdict != node.Unknown {
			t.Errorf("%s: %q is no verdict", m, a.Verdict)
		}
		if a.Why == "" {
			t.Errorf("%s: no reason", m)
		}
	}
	all := features(t)
	if all == nil {
		all = slices.Collect(maps.Keys(can))
	}
	for _, m := range all {
		if _, asked := can[m]; !asked {
			t.Errorf("%s was not asked for", m)
		}
		if capability.Fallback(m) == "" {
			t.Errorf("%s: nothing is said to be used instead", m)
		}
	}
	if len(can) != len(all) {
		t.Errorf("%d answers for %d features", len(can), len(all))
	}
}
