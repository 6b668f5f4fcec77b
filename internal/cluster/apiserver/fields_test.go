package apiserver

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestWhatHasNoFieldIsDropped drops from an object what a schema does not have, at each
// depth and in lists. The keys of a map are no fields.
func TestWhatHasNoFieldIsDropped(t *testing.T) {
	var known Fields
	text := `{"properties": {"name": {"type": "string"}, "list": {"items": {"properties": {"a": {}}}}, "map": {"additionalProperties": {"type": "integer"}},
		"free": {"properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": true}, "inner": {"properties": {"a": {"properties": {"b": {}}}}}}}`
	if err := json.Unmarshal([]byte(text), &known); err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	sent := `{"name": "n", "new": 1, "list": [{"a": 1, "b": 2}, {"b": 3}], "map": {"k": 1}, "free": {"z": 1}, "inner": {"a": {"b": 1, "c": 2}, "d": {}}}`
	if err := json.Unmarshal([]byte(sent), &object); err != nil {
		t.Fatal(err)
	}
	if got, want := known.Drop(object), []string{".inner.a.c", ".inner.d", ".list.b", ".new"}; !slices.Equal(got, want) {
		t.Errorf("dropped %v, want %v", got, want)
	}
	left, err := json.Marshal(object)
	if want := `{"free":{"z":1},"inner":{"a":{"b":1}},"list":[{"a":1},{}],"map":{"k":1},"name":"n"}`; err != nil || string(left) != want {
		t.Errorf("left %s, want %s (%v)", left, want, err)
	}
}
