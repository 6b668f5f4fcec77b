package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A chartKey is a key of the ConfigMap, with the settings below it and the name
// of its list of entries for some nodes, or "" if it has none.
type chartKey struct {
	settings reflect.Type
	list     string
}

var chartKeys = map[string]chartKey{
	keyThreshold:     {reflect.TypeFor[Threshold](), "nodeStrategies"},
	keyQOS:           {reflect.TypeFor[QOS](), "nodeStrategies"},
	keyBurst:         {reflect.TypeFor[Burst](), "nodeStrategies"},
	keyColocation:    {reflect.TypeFor[Colocation](), "nodeConfigs"},
	keySystem:        {reflect.TypeFor[System](), "nodeStrategies"},
	keyHostApps:      {reflect.TypeFor[HostApplications](), "nodeConfigs"},
	keyNormalization: {reflect.TypeFor[Normalization](), "nodeConfigs"},
	keyAmplification: {reflect.TypeFor[Amplification](), "nodeConfigs"},
	keyObjective:     {reflect.TypeFor[PodObjectives](), "nodeConfigs"},
	keyBatch:         {reflect.TypeFor[Batch](), ""},
	keyRollout:       {reflect.TypeFor[Rollout](), ""},
}

// TestTheChartTakesEveryKeyOfTheConfigMap compares the part of the chart's schema
// for the ConfigMap with the keys that tenond reads and the values that it does not
// refuse. So Helm refuses a wrong key before anything is installed.
func TestTheChartTakesEveryKeyOfTheConfigMap(t *testing.T) {
	const file = "../../deploy/chart/tenon/values.schema.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "\n    \"configMap\": ")
	_, after, found := strings.Cut(rest, "\n    }")
	if !found {
		t.Fatalf("%s has no definition configMap", file)
	}
	want := before + "\n    \"configMap\": " + chartSchema(t) + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s has other keys than the ConfigMap: go test ./internal/config -run TheChartTakes -update writes them", file)
	}
}

// TestTheKeysOfTheChartAreKnown reads a ConfigMap that has every key of the chart's
// schema without a value. tenond must know each of them, in its place.
func TestTheKeysOfTheChartAreKnown(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(chartKeys)), slices.Sorted(slices.Values(clusterKeys)); !slices.Equal(got, want) {
		t.Errorf("the chart takes the keys %v, and the ConfigMap has %v", got, want)
	}
	for name, key := range chartKeys {
		unset := map[string]any{}
		for _, k := range keysOf(key.settings) {
			unset[k.name] = nil
		}
		top := unset
		if key.list == "nodeStrategies" {
			top = map[string]any{"clusterStrategy": unset}
		}
		entry := map[string]any{"name": "some", "nodeSelector": map[string]any{}}
		maps.Copy(entry, unset)
		whole := maps.Clone(top)
		if key.list != "" {
			whole[key.list] = []any{entry}
		}
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		if c, faults := ParseConfigMap(map[string]string{name: string(text)}); len(faults) > 0 || len(c.Notices()) > 0 {
			t.Errorf("%s: %v %q", text, faults, c.Notices())
		}
	}
}

// chartSchema prints the schema of the ConfigMap as the chart has it.
func chartSchema(t *testing.T) string {
	s := schemaWriter{defs: map[string]any{}}
	properties := map[string]any{}
	for name, key := range chartKeys {
		settings := s.properties(key.settings)
		entry := maps.Clone(settings)
		maps.Copy(entry, s.properties(reflect.TypeFor[entryKeys]()))
		top := settings
		if key.list == "nodeStrategies" {
			top = map[string]any{"clusterStrategy": object(settings)}
		}
		if key.list != "" {
			top[key.list] = map[string]any{"type": "array", "items": object(entry)}
		}
		properties[name] = object(top)
	}
	whole := object(properties)
	whole["$defs"] = s.defs
	var b bytes.Buffer
	printSchema(t, &b, whole, "    ")
	return b.String()
}

// A schemaWriter collects the definitions of the mappings that occur in the
// settings.
type schemaWriter struct{ defs map[string]any }

func object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func (s schemaWriter) properties(t reflect.Type) map[string]any {
	all := map[string]any{}
	for _, k := range keysOf(t) {
		all[k.name] = s.schema(t.FieldByIndex(k.index).Type, k)
	}
	return all
}

// schema returns the schema of the values of a key. It accepts what the parser of a
// ConfigMap accepts, except for ranges of durations and of amounts.
func (s schemaWriter) schema(t reflect.Type, k key) map[string]any {
	span := k.span
	if k.taken.low != "" || k.taken.high != "" {
		span = k.taken
	}
	switch t {
	case reflect.TypeFor[node.Maybe[bool]]():
		return map[string]any{"enum": []any{true, false, 1, 0}}
	case reflect.TypeFor[node.Maybe[string]](), reflect.TypeFor[string]():
		if words := slices.Concat(k.words, k.inert); len(words) > 0 && !slices.Contains(words, "*") {
			return map[string]any{"enum": words}
		}
		return map[string]any{"type": "string"}
	case reflect.TypeFor[node.Maybe[int64]](), reflect.TypeFor[node.Maybe[unit.Percent]]():
		if span.IsSwitch() {
			return map[string]any{"enum": []any{true, false, 1, 0}}
		}
		return number("integer", span)
	case reflect.TypeFor[node.Maybe[float64]]():
		return number("number", span)
	case reflect.TypeFor[node.Maybe[time.Duration]](), reflect.TypeFor[Duration]():
		return map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h))+$`}
	case reflect.TypeFor[node.Maybe[unit.MilliCPU]](), reflect.TypeFor[node.Maybe[unit.Bytes]](), reflect.TypeFor[node.Maybe[Bandwidth]]():
		return map[string]any{"type": []any{"string", "number"}}
	}
	switch t.Kind() {
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.schema(t.Elem(), key{})}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return map[string]any{"type": "object"}
		}
		return map[string]any{"type": "object", "additionalProperties": s.schema(t.Elem(), k)}
	case reflect.Struct:
		if s.defs[t.Name()] == nil {
			s.defs[t.Name()] = object(s.properties(t))
		}
		return map[string]any{"$ref": "#/$defs/configMap/$defs/" + t.Name()}
	}
	panic("no schema for the type " + t.String())
}

func number(kind string, s span) map[string]any {
	all := map[string]any{"type": kind}
	switch {
	case s.low == "":
	case s.above:
		all["exclusiveMinimum"] = s.from
	default:
		all["minimum"] = s.from
	}
	if s.high != "" {
		all["maximum"] = s.to
	}
	return all
}

// printSchema prints v as JSON, with sorted keys. A mapping without further
// mappings stands on one line.
func printSchema(t *testing.T, b *bytes.Buffer, v any, indent string) {
	m, is := v.(map[string]any)
	flat := !is
	if is {
		flat = !slices.ContainsFunc(slices.Collect(maps.Values(m)), func(v any) bool { _, nested := v.(map[string]any); return nested })
	}
	if flat {
		var one bytes.Buffer
		e := json.NewEncoder(&one)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		b.Write(bytes.TrimSpace(one.Bytes()))
		return
	}
	b.WriteString("{")
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n" + indent + "  \"" + name + "\": ")
		printSchema(t, b, m[name], indent+"  ")
	}
	b.WriteString("\n" + indent + "}")
}
