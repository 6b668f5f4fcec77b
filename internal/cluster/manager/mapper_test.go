package manager

import (
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// TestTheMapperKnowsWhatIsCached checks that the mapper knows each kind that
// the manager caches.
func TestTheMapperKnowsWhatIsCached(t *testing.T) {
	types, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	m, err := mapper(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := (Options{}).runtime(types, logr.Discard(), nil)
	if len(o.Cache.ByObject) == 0 {
		t.Fatal("nothing is cached")
	}
	for object := range o.Cache.ByObject {
		kind, err := apiutil.GVKForObject(object, types)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			t.Error(err)
		}
	}
	if o.Controller.CacheSyncTimeout != startupLimit {
		t.Errorf("a manager waits at its start for %v, want no limit", o.Controller.CacheSyncTimeout)
	}
}
