package tenon_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// notLinked lists, for a command, the modules that it must not link: a tool for
// one machine needs no Kubernetes client and no plugin of a container runtime.
// It asks containerd by containerd's own client, and so links gRPC.
var notLinked = map[string][]string{
	"cmd/tenon": {"k8s.io/", "sigs.k8s.io/", "github.com/containerd/nri"},
}

// TestCommandsLinkNoMore follows the imports of each command through the
// packages of this repository. What other modules import in turn it does not
// see: outside of them is where such a module would come in.
func TestCommandsLinkNoMore(t *testing.T) {
	rooms := readRooms(t)
	for cmd, banned := range notLinked {
		way := map[string]string{cmd: cmd}
		for next := []string{cmd}; len(next) > 0; next = next[1:] {
			r := rooms[next[0]]
			if r == nil {
				t.Fatalf("%s imports %s, of which there are no sources", cmd, next[0])
			}
			for _, imp := range r.imports {
				for _, prefix := range banned {
					if strings.HasPrefix(imp, prefix) {
						t.Errorf("%s links %s by %s", cmd, imp, way[next[0]])
					}
				}
				own, isOwn := strings.CutPrefix(imp, ourModule)
				own = strings.TrimPrefix(own, internal)
				if isOwn && way[own] == "" {
					way[own] = way[next[0]] + " → " + own
					next = append(next, own)
				}
			}
		}
		if len(way) < 10 {
			t.Errorf("%s is made of %v only: the test does not follow its imports", cmd, slices.Sorted(maps.Keys(way)))
		}
	}
}
