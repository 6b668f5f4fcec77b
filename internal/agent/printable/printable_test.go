package printable

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestNamesCannotLeaveTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"batch.slice":            "batch.slice",
		"größe-日本":               "größe-日本",
		`system-systemd\x2dfsck`: `system-systemd\x2dfsck`,
		"a\nTROUBLE: b":          `a\nTROUBLE: b`,
		"a\x1b[2Jb":              `a\x1b[2Jb`,
		"a\u009b2Jb":             `a\u009b2Jb`, // CSI in one character
		"a\u202eb\u200b":         `a\u202eb\u200b`,
		"a\xff\xfeb":             `a\xff\xfeb`,
		"a\x7f\t\r'b":            `a\x7f\t\r'b`,
		"a\ufffdb":               "a\ufffdb",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Lines("a\nb\x1b\n"); got != "a\nb\\x1b\n" {
		t.Errorf("%q", got)
	}
}

func TestEachTextInAValueIsOneLine(t *testing.T) {
	type name string
	type inner struct {
		Name  name
		Error string
	}
	type value struct {
		inner
		Inner  *inner
		All    []inner
		By     map[name]any
		Array  [1]name
		None   *inner
		hidden string
	}
	bad := inner{"a\nb", "one\ntwo\x1b\n"}
	v := value{bad, &bad, []inner{bad}, map[name]any{"k\n": bad}, [1]name{"\x1b"}, nil, "same\n"}
	got := Value(v)
	good := inner{`a\nb`, `one; two\x1b`}
	if *got.Inner != good || got.All[0] != good || got.By[`k\n`] != good || got.Array[0] != `\x1b` || got.None != nil || got.hidden != v.hidden {
		t.Errorf("%+v", got)
	}
	marked := EachText(v, func(text string) string { return "<" + text + ">" })
	if want := (inner{"<a\nb>", "<one\ntwo\x1b\n>"}); *marked.Inner != want || marked.All[0] != want || marked.By["<k\n>"] != want || marked.Array[0] != "<\x1b>" {
		t.Errorf("%+v", marked)
	}
	if bad.Name != "a\nb" || v.All[0] != bad || v.By["k\n"] != bad {
		t.Error("the value itself was changed")
	}
}

// FuzzJSON checks that the JSON of each text can be printed, and has the same
// meaning.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{"a", "\x1b\u009b\u202e\x7f", "\U000e0001", "\xff", "\u2028"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b strings.Builder
		e := json.NewEncoder(JSON(&b))
		e.SetIndent("", "  ")
		if err := e.Encode(map[string]string{"key": text}); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%q has %U", b.String(), r)
			}
		}
		var back map[string]string
		if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back["key"] != strings.ToValidUTF8(text, "\ufffd") && strings.ToValidUTF8(text, "") == text {
			t.Errorf("%q became %q: %v", text, back["key"], err)
		}
	})
}
