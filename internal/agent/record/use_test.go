package record

import (
	"encoding"
	"encoding/json"
	"reflect"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// emptyEachPart empties each part of a struct in turn, and calls the function
// visit while that part is empty.
func emptyEachPart(v reflect.Value, name string, visit func(name string)) {
	_, isMaybe := v.Addr().Interface().(json.Unmarshaler)
	_, isSet := v.Addr().Interface().(encoding.TextUnmarshaler)
	if v.Kind() == reflect.Struct && !isMaybe && !isSet {
		for i := range v.NumField() {
			emptyEachPart(v.Field(i), name+"."+v.Type().Field(i).Name, visit)
		}
		return
	}
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		emptyEachPart(v.Elem(), name, visit)
	}
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	v.SetZero()
	visit(name)
	v.Set(old)
}

// TestSameUseLooksAtEveryCounter empties one counter of Usage after the other.
// sameUse must notice each of them, because a counter that it ignores would be
// missing in every record.
func TestSameUseLooksAtEveryCounter(t *testing.T) {
	var full, one node.Usage
	fill(reflect.ValueOf(&full), 3)
	fill(reflect.ValueOf(&one), 3)
	if !sameUse(&node.Usage{}, &node.Usage{}) || !sameUse(&full, &one) {
		t.Error("the same use is not the same")
	}
	counters := 0
	emptyEachPart(reflect.ValueOf(&one).Elem(), "Usage", func(name string) {
		counters++
		if sameUse(&full, &one) {
			t.Errorf("without %s it is the same", name)
		}
	})
	if counters < 20 {
		t.Errorf("only %d counters were found", counters)
	}
}

// TestSameButUseLooksAtAllElse empties one part of a workload after the other,
// except its resource usage. EqualButUse must notice each change.
func TestSameButUseLooksAtAllElse(t *testing.T) {
	var full, one node.Workload
	fill(reflect.ValueOf(&full), 3)
	fill(reflect.ValueOf(&one), 3)
	one.Usage = node.Usage{}
	if !EqualButUse(&full, &one) {
		t.Error("another use makes another workload")
	}
	v := reflect.ValueOf(&one).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Name == "Usage" {
			continue
		}
		emptyEachPart(v.Field(i), v.Type().Field(i).Name, func(name string) {
			if EqualButUse(&full, &one) {
				t.Errorf("without %s it is the same", name)
			}
		})
	}
}
