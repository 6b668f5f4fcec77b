package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestEveryKeyThatActsReachesThePolicies gives each key other values, while all
// parts of the configuration are on. One of them must change the configuration
// of the policies. A key without support must change nothing.
func TestEveryKeyThatActsReachesThePolicies(t *testing.T) {
	keys := map[string]bool{} // whether the key acts
	for _, base := range switchedOn() {
		before := base.Policy()
		visitLeaves(reflect.ValueOf(&base).Elem(), "", false, func(k key, path string, v reflect.Value, later bool) {
			acts := actsOn(before, &base, k, v)
			if later && acts {
				t.Errorf("%s acts, and the schema says that it does so later", path)
			}
			if !later {
				keys[keyAt(path)] = keys[keyAt(path)] || acts
			}
		})
	}
	for path, acts := range keys {
		if !acts {
			t.Errorf("%s changes nothing in the configuration of the policies: Policy does not use it", path)
		}
	}
	if len(keys) < 60 {
		t.Errorf("%d keys act; the schema has more", len(keys))
	}
}

// keyAt returns the key at a path, which classes share.
func keyAt(path string) string {
	section, name := documentedAt(strings.ReplaceAll(path, "[0]", "[]"))
	return strings.TrimPrefix(section+"."+name, ".")
}

// actsOn reports whether another value of a key changes the configuration of the
// policies. v is the value of the key in s, and stays as it is.
func actsOn(before policy.Config, s *Strategies, k key, v reflect.Value) bool {
	was := reflect.ValueOf(v.Interface())
	defer v.Set(was)
	for _, text := range otherValues(k) {
		v.Set(was)
		if err := json.Unmarshal([]byte(text), v.Addr().Interface()); err == nil && !reflect.DeepEqual(before, s.Policy()) {
			return true
		}
	}
	return false
}

// switchedOn returns configurations that have all parts on. What a key changes
// shows in one of them: with limits of its own, or with the defaults.
func switchedOn() []Strategies {
	var plain Strategies
	visitLeaves(reflect.ValueOf(&plain).Elem(), "", false, func(k key, _ string, v reflect.Value, later bool) {
		if on, is := v.Addr().Interface().(*node.Maybe[bool]); is && k.name == "enable" && !later {
			*on = node.Some(true)
		}
	})
	limited := plain
	limited.Threshold.MemoryEvictThresholdPercent = node.Some[unit.Percent](80)
	limited.Threshold.CPUEvictThresholdPercent = node.Some[unit.Percent](90)
	limited.Threshold.CPUEvictBESatisfactionLowerPercent = node.Some[unit.Percent](20)
	limited.Threshold.CPUEvictBESatisfactionUpperPercent = node.Some[unit.Percent](30)
	for _, class := range limited.QOS.pointers() {
		class.Memory.MinLimitPercent = node.Some[unit.Percent](20)
		class.BlkIO.Blocks = []Block{{Name: node.Some("vda"), IO: IO{ReadBPS: node.Some[int64](1 << 20)}}}
	}
	return []Strategies{plain, limited}
}

// visitLeaves calls visit with each single value below a mapping, and with those
// of the items of its lists.
func visitLeaves(v reflect.Value, path string, later bool, visit func(k key, path string, v reflect.Value, later bool)) {
	for _, k := range keysOf(v.Type()) {
		f, at, off := v.FieldByIndex(k.index), join(path, k.name), later || k.later
		switch {
		case f.Kind() == reflect.Struct && !isLeaf(f):
			visitLeaves(f, at, off, visit)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for i := range f.Len() {
				visitLeaves(f.Index(i), fmt.Sprintf("%s[%d]", at, i), off, visit)
			}
		case isLeaf(f):
			visit(k, at, f, off)
		}
	}
}

// otherValues returns values for a key in JSON. At least one of them differs from
// the default, and from what other keys make of a missing value.
func otherValues(k key) []string {
	texts := []string{"true", "false", "0", "1", "2", "7", "13", "0.5", "97", "-1", `"x"`, `"1Gi"`}
	for _, w := range k.words {
		texts = append(texts, strconv.Quote(strings.TrimSpace(w)))
	}
	return texts
}
