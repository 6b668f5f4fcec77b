package published

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Decode reads a result.json as Lookup wants it: numbers keep their text.
func Decode(text []byte) (v any, err error) {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	err = in.Decode(&v)
	return v, err
}

var part = regexp.MustCompile(`([^.[]+)(?:\[([^]]*)\])?`)

// Lookup follows a path such as options[strategy=quota,jobs=2].penalty: keys, and
// the one element of an array whose keys have these values. The value "" stands
// for a key that is absent. It returns nil if there is no such value.
func Lookup(v any, path string) any {
	for _, m := range part.FindAllStringSubmatch(path, -1) {
		object, is := v.(map[string]any)
		if !is {
			return nil
		}
		v = object[m[1]]
		if m[2] == "" {
			continue
		}
		list, is := v.([]any)
		if !is {
			return nil
		}
		list = slices.DeleteFunc(slices.Clone(list), func(e any) bool {
			for want := range strings.SplitSeq(m[2], ",") {
				key, text, _ := strings.Cut(want, "=")
				got := ""
				if have := Lookup(e, key); have != nil {
					got = fmt.Sprint(have)
				}
				if got != text {
					return true
				}
			}
			return false
		})
		if len(list) != 1 {
			return nil
		}
		v = list[0]
	}
	return v
}
