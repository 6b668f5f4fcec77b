package colocation

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestEveryKeyIsDocumented checks that docs/result.md names every key.
func TestEveryKeyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/result.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[TracedResult](), reflect.TypeFor[BatchPods](), reflect.TypeFor[BatchPodsResult](), reflect.TypeFor[Conclusion]()} {
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(string(page), key) {
				t.Errorf("docs/result.md does not name the key %s of %s", key, typ.Name())
			}
		}
	}
}
