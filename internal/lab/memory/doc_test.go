package memory

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestEveryKeyIsDocumented checks that docs/lab.md and docs/result.md name
// every key.
func TestEveryKeyIsDocumented(t *testing.T) {
	for page, values := range map[string][]any{
		"../../../docs/lab.md":    {Use{}, Setup{}},
		"../../../docs/result.md": {Summary{}},
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			typ := reflect.TypeOf(v)
			for i := range typ.NumField() {
				key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				if !strings.Contains(string(text), key) {
					t.Errorf("%s does not name the key %s of %s", page, key, typ.Name())
				}
			}
		}
	}
}
