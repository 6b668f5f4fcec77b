package report

import (
	"encoding/json"
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
	data, err := json.Marshal(Interval{Dropped: 1})
	if err != nil {
		t.Fatal(err)
	}
	var interval map[string]any
	if err := json.Unmarshal(data, &interval); err != nil {
		t.Fatal(err)
	}
	for key := range interval {
		if !strings.Contains(string(page), key) {
			t.Errorf("docs/result.md does not name the key %s of an interval", key)
		}
	}
	for _, v := range []any{Result{}, ModeResult{}, DelayRatio{}, Control{}, Claim{}, VoidRun{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(string(page), key) {
				t.Errorf("docs/result.md does not name the key %s of %s", key, typ.Name())
			}
		}
	}
}
