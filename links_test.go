package tenon_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// unlinkedModules lists, for each command, the modules that it must not link. A
// tool for one machine needs no Kubernetes client and no plugin of a container
// runtime. It uses containerd's own client, and therefore links gRPC.
var unlinkedModules = map[string][]string{
	"cmd/tenon": {"k8s.io/", "sigs.k8s.io/", "github.com/containerd/nri"},
}

// TestCommandsLinkNoMore follows the imports of each command through the
// packages of this repository. It does not follow imports between packages of
// other modules; such a module would enter through a package of this
// repository.
func TestCommandsLinkNoMore(t *testing.T) {
	rooms := readRooms(t)
	for cmd, banned := range unlinkedModules {
		way := map[string]string{cmd: cmd}
		for next := []string{cmd}; len(next) > 0; next = next[1:] {
			r := rooms[next[0]]
			if r == nil {
				t.Fatalf("%s imports %s, which has no sources", cmd, next[0])
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
			t.Errorf("%s consists of %v only: the test does not follow its imports", cmd, slices.Sorted(maps.Keys(way)))
		}
	}
}
