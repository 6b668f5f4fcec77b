package config

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestEveryKeyIsDocumented compares docs/configuration.md with the schema. Each
// key must have a row with its default, its range, and whether it has an
// effect.
func TestEveryKeyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := tableRows(string(page))
	f := file{Strategies: defaults}
	seen := 0
	visitKeys(reflect.ValueOf(f), "", false, func(k key, path string, v reflect.Value, later bool) {
		section, name := documentedAt(path)
		row, ok := rows[section][name]
		if !ok {
			t.Errorf("docs/configuration.md has no row `%s` in the section `%s`", name, section)
			return
		}
		seen++
		if want := rangeText(k, v); want != "" && row[3] != want {
			t.Errorf("%s: docs/configuration.md says the range %q, want %q", path, row[3], want)
		}
		if acts := map[bool]string{true: "no", false: "yes"}[later]; row[4] != acts {
			t.Errorf("%s: docs/configuration.md says that it acts: %q, want %q", path, row[4], acts)
		}
		if want := defaultText(path, v); want != "" && row[2] != want {
			t.Errorf("%s: docs/configuration.md says the default %q, want %q", path, row[2], want)
		}
	})
	if seen < 90 {
		t.Errorf("%d keys were looked up; the schema has more", seen)
	}
}

// TestEveryDocumentedKeyIsKnown checks that each key of the page is in the
// schema.
func TestEveryDocumentedKeyIsKnown(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	visitKeys(reflect.ValueOf(file{}), "", false, func(_ key, path string, _ reflect.Value, _ bool) {
		section, name := documentedAt(path)
		known[section+" "+name] = true
	})
	for section, rows := range tableRows(string(page)) {
		for name := range rows {
			if !known[section+" "+name] {
				t.Errorf("docs/configuration.md documents `%s` in the section `%s`, which is no key", name, section)
			}
		}
	}
}

// visitKeys calls visit for every value below the mapping v, including values
// in lists. later means that the value, or a mapping around it, has no effect
// yet.
func visitKeys(v reflect.Value, path string, later bool, visit func(k key, path string, v reflect.Value, later bool)) {
	for _, k := range keysOf(v.Type()) {
		f, at, off := v.FieldByIndex(k.index), join(path, k.name), later || k.later
		switch {
		case at == "resource-qos-config.cgroupRoot": // one row for all of its keys
			visit(k, at, f, off)
		case f.Kind() == reflect.Struct && !isLeaf(f):
			visitKeys(f, at, off, visit)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			if at == "rules" || at == "slices" {
				visit(k, at, f, off)
			}
			visitKeys(reflect.Zero(f.Type().Elem()), at+"[]", off, visit)
		default:
			visit(k, at, f, off)
		}
	}
}

// documentedAt returns the section and the row of a key on the page. All
// classes have the same rows.
func documentedAt(path string) (section, name string) {
	for _, list := range []string{"rules", "slices"} {
		if name, ok := strings.CutPrefix(path, list+"[]."); ok {
			return list, name
		}
	}
	section, name, nested := strings.Cut(path, ".")
	if !nested {
		return "", path
	}
	for _, class := range (QOS{}).classes() {
		name = strings.TrimPrefix(name, class.key+".")
	}
	return section, name
}

// tableRows returns the cells of the page's tables, by section and key.
func tableRows(page string) map[string]map[string][]string {
	rows := map[string]map[string][]string{"": {}}
	section := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.Trim(heading, "`")
			rows[section] = map[string][]string{}
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[section][strings.Trim(cells[0], "`")] = cells
	}
	return rows
}

// rangeText returns the range of a key as the page must print it. It returns ""
// if the page may use any text.
func rangeText(k key, v reflect.Value) string {
	if _, isBool := v.Interface().(node.Maybe[bool]); isBool {
		return "true, false"
	}
	if len(k.words) > 0 {
		return strings.Replace(strings.Join(k.words, ", "), mechanismNames(), "[a mechanism](isolation.md#the-isolation-mechanisms)", 1)
	}
	s := strings.TrimSpace(k.span.String())
	return strings.TrimPrefix(strings.TrimPrefix(s, "from "), "of ")
}

// mechanismNames returns the names of all mechanisms, as messages list them. Pages
// and golden files stay the same when there is another mechanism.
func mechanismNames() string {
	var names []string
	for _, m := range node.Mechanisms {
		names = append(names, string(m))
	}
	return strings.Join(names, ", ")
}

// defaultText returns the default of a key as the page must print it. It
// returns "" if there is no default, or if it depends on other keys.
func defaultText(path string, v reflect.Value) string {
	texts := []string{plainJSON(v)}
	for _, class := range defaults.QOS.classes() {
		prefix := "resource-qos-config." + class.key + "."
		if _, ok := strings.CutPrefix(path, prefix); !ok {
			continue
		}
		texts = nil
		for _, c := range defaults.QOS.classes() {
			texts = append(texts, plainJSON(valueAt(reflect.ValueOf(c.Class), strings.TrimPrefix(path, prefix))))
		}
	}
	if len(slices.Compact(slices.Clone(texts))) == 1 {
		return texts[0]
	}
	return strings.Join(texts, " / ")
}

// valueAt returns the value at a dotted path below v.
func valueAt(v reflect.Value, path string) reflect.Value {
	name, rest, nested := strings.Cut(path, ".")
	for _, k := range keysOf(v.Type()) {
		if k.name == name && nested {
			return valueAt(v.FieldByIndex(k.index), rest)
		}
		if k.name == name {
			return v.FieldByIndex(k.index)
		}
	}
	return reflect.Value{}
}

// plainJSON returns a single value as JSON, without quotes. It returns "" if
// the value is not set.
func plainJSON(v reflect.Value) string {
	if !v.IsValid() || !isLeaf(v) || v.IsZero() {
		return ""
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(text), `"`)
}
