package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

func oneSlice(name string, cpus, count int64) Slice {
	return Slice{Name: node.Some(name), CPUs: node.Some(cpus), Count: node.Some(count)}
}

func TestFaultsNameFieldAndWhatIsWanted(t *testing.T) {
	var got []string
	note := func(field, problem string) { got = append(got, field+": "+problem) }
	checkSlices([]Slice{oneSlice("enc", 4, 3), oneSlice("enc", 1, 1), oneSlice("-x", 1, 1), {Count: node.Some[int64](1)}},
		[]sliceUse{{"a", "BE", node.Some("enc")}, {"b", "LS", node.Some("enc")}, {"c", "BE", node.Some("encoder")}, {Rule: "d", Class: "LS"}},
		map[string]bool{"slices[3].cpus": true}, note)
	want := []string{
		`slices[1].name: "enc": slices[0] has this name already`,
		`slices[2].name: "-x": ` + SliceNameForm,
		"slices[3].name: missing: want a name that no other slice has",
		`rules[1].slice: "enc": want it for class BE only, and class LS is not divided into workers`,
		`rules[2].slice: "encoder": want one of enc, the names below slices`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = nil
	checkSlices(nil, []sliceUse{{"a", "BE", node.Some("enc")}}, nil, note)
	if !slices.Equal(got, []string{`rules[0].slice: "enc": want the name of an entry of slices, and there is none`}) {
		t.Errorf("%q", got)
	}
}

func TestSlicesKnowTheirRules(t *testing.T) {
	all := []Slice{oneSlice("enc", 4, 3), {Name: node.Some("idle"), CPUs: node.Some[int64](1)}}
	uses := []sliceUse{{"a", "BE", node.Some("enc")}, {Rule: "b", Class: "BE"}, {"c", "BE", node.Some("enc")}}
	if got := fmt.Sprint(workerSlices(all, uses)); got != "[{enc 4 3 [a c] 0} {idle 1 1 [] 0}]" {
		t.Errorf("%s", got)
	}
	if got := sliceNotices(all, uses); len(got) != 1 || got[0] != "slices[1]: no rule has slice: idle, so its workers stay empty" {
		t.Errorf("%q", got)
	}
}

func TestNamesAreThoseOfRules(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "a-b.c_9": true, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false, "": false, ".a": false, "a-": false, "ä": false, "a b": false} {
		if IsSliceName(name) != ok {
			t.Errorf("%q: %v, want %v", name, !ok, ok)
		}
	}
}
