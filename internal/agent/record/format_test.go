package record

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var update = flag.Bool("update", false, "rewrite the fields of the record")

// TestANewFieldIsANewVersion compares the fields of a record, and the kinds of
// knobs, with those of the present version. A change needs a new version: a
// program that reads a record of another version would lose the fields that it
// does not know, and make other decisions.
func TestANewFieldIsANewVersion(t *testing.T) {
	fields := presentFields()
	if now := formatOf(version, fields); format != now && !*update {
		t.Fatalf("the record has other fields and still the version %d: make golden writes format.txt with the next version:\n%s",
			version, diffLines(format, now))
	}
	if next := nextFormat(format, fields); next != format {
		if err := os.WriteFile("format.txt", []byte(next), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnUpdateOfTheFieldsRaisesTheVersion checks that no list of fields is
// written with the version of another list.
func TestAnUpdateOfTheFieldsRaisesTheVersion(t *testing.T) {
	was := formatOf(7, []string{"at text", "tick int"})
	for name, c := range map[string]struct {
		fields []string
		want   int
	}{
		"the same fields": {[]string{"at text", "tick int"}, 7},
		"one more":        {[]string{"at text", "new int", "tick int"}, 8},
		"one less":        {[]string{"at text"}, 8},
		"another type":    {[]string{"at text", "tick string"}, 8},
	} {
		if got := versionOf(nextFormat(was, c.fields)); got != c.want {
			t.Errorf("%s: the version is %d, want %d", name, got, c.want)
		}
	}
}

// presentFields lists the fields that a line has now, and the kinds of knobs.
func presentFields() []string {
	fields := fieldsOf(reflect.TypeFor[line](), "")
	for _, f := range node.Files {
		fields = append(fields, "knob "+string(f))
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// formatOf returns the text of format.txt.
func formatOf(version int, fields []string) string {
	return fmt.Sprintf("version %d\n%s\n", version, strings.Join(fields, "\n"))
}

// nextFormat returns was if it has these fields, and else the format of the next version.
func nextFormat(was string, fields []string) string {
	v := versionOf(was)
	if formatOf(v, fields) == was {
		return was
	}
	return formatOf(v+1, fields)
}

// diffLines lists the lines that only one of two texts has.
func diffLines(was, now string) string {
	a, b := strings.Split(was, "\n"), strings.Split(now, "\n")
	var out []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			out = append(out, "-"+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			out = append(out, "+"+l)
		}
	}
	return strings.Join(out, "\n")
}

// fieldsOf lists the fields of a type with their JSON names and types.
func fieldsOf(t reflect.Type, path string) []string {
	switch {
	case isMaybe(t):
		value, _ := t.FieldByName("value")
		return fieldsOf(value.Type, path)
	case isText(t):
		return []string{path + " text"}
	}
	var all []string
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && name == "":
				all = append(all, fieldsOf(f.Type, path)...)
			case f.Type == reflect.TypeFor[[]node.Workload]() && path == "rest": // this field never has a value, see restOf
			default:
				if name == "" || name == "-" {
					name = f.Name
				}
				all = append(all, fieldsOf(f.Type, strings.TrimPrefix(path+"."+name, "."))...)
			}
		}
	case reflect.Pointer:
		return fieldsOf(t.Elem(), path)
	case reflect.Slice, reflect.Array:
		return fieldsOf(t.Elem(), path+"[]")
	case reflect.Map:
		return fieldsOf(t.Elem(), path+"{}")
	default:
		return []string{path + " " + t.Kind().String()}
	}
	return all
}

func isMaybe(t reflect.Type) bool { return strings.HasPrefix(t.Name(), "Maybe[") }

// isText reports whether a type has its own text form.
func isText(t reflect.Type) bool {
	return t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[unit.CPUSet]() || t.Kind() == reflect.Interface
}

// TestWhatThePoliciesRememberIsRecorded sets every field of the State of the
// policies, records the State and reads it again. It finds fields that are
// missing in the JSON form.
func TestWhatThePoliciesRememberIsRecorded(t *testing.T) {
	for _, f := range hiddenIn(reflect.TypeFor[policy.State](), "State", map[reflect.Type]bool{}) {
		t.Errorf("%s is not in its JSON form: it is lost in a record", f)
	}
	turn := lived(2, 1, time.Second)[0]
	fill(reflect.ValueOf(&turn.Before), 1)
	r, err := newReader(strings.NewReader(linesOf(t, []Tick{turn}, 1)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.next()
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffExactly(turn.Before, got.Before); diff != "" {
		t.Errorf("what is remembered (-want +got):\n%s", diff)
	}
}

// hiddenIn lists the fields of a type that are missing in its JSON form.
func hiddenIn(t reflect.Type, path string, seen map[reflect.Type]bool) []string {
	switch {
	case isMaybe(t) || isText(t) || seen[t]:
		return nil
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map || t.Kind() == reflect.Pointer:
		return hiddenIn(t.Elem(), path, seen)
	case t.Kind() != reflect.Struct:
		return nil
	}
	seen[t] = true
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		if name := path + "." + f.Name; !f.IsExported() || f.Tag.Get("json") == "-" {
			all = append(all, name)
		} else {
			all = append(all, hiddenIn(f.Type, name, seen)...)
		}
	}
	return all
}
