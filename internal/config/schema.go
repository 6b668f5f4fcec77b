package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A key is one key of the file. The struct that the file is read into is also
// its schema; these tags of a field describe its key:
//
//	json     its name
//	range    the numbers it takes: "0..100", "1..", ">0..1", "100ms..60s"
//	oneof    the words it takes
//	later    it is read and checked, but this version does not act on it; the
//	         tag's value, if any, is the key's neutral value: with it, the key
//	         requests nothing
//	section  it is a strategy that Koordinator's ConfigMap has too; the tag's
//	         value is the key there that lists the exceptions of single nodes
type key struct {
	name    string
	index   []int
	span    span
	words   []string
	later   bool
	off     string
	section string
}

// keysOf returns the keys of a mapping that is read into the struct t.
func keysOf(t reflect.Type) []key {
	var keys []key
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue // its keys follow as if they were t's own
		}
		k := key{index: f.Index, span: parseSpan(f.Tag.Get("range")), words: strings.Fields(f.Tag.Get("oneof")), section: f.Tag.Get("section")}
		k.name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
		k.off, k.later = f.Tag.Lookup("later")
		keys = append(keys, k)
	}
	return keys
}

// isLeaf reports whether v is a node.Maybe: one value, not a mapping of more.
func isLeaf(v reflect.Value) bool {
	_, leaf := v.Interface().(interface{ Known() bool })
	return leaf
}

// What a key without a range or words takes.
const (
	aBool     = "true or false"
	aWhole    = "a whole number"
	aNumber   = "a number"
	aDuration = "a duration"
	aText     = "text"
)

// want says what k takes: "a whole number from 0 to 100".
func (k key) want(noun string) string {
	switch {
	case len(k.words) == 1:
		return k.words[0]
	case len(k.words) > 1:
		return "one of " + strings.Join(k.words, ", ")
	}
	return noun + k.span.String()
}

// A span is a range of numbers. The zero span is all of them.
type span struct {
	low, high string // as written; "": no bound
	above     bool   // low itself is outside
	from, to  float64
}

// parseSpan reads the tag range.
func parseSpan(tag string) span {
	if tag == "" {
		return span{}
	}
	var s span
	s.low, s.high, _ = strings.Cut(tag, "..")
	s.low, s.above = strings.CutPrefix(s.low, ">")
	s.from, s.to = bound(s.low), bound(s.high)
	return s
}

// bound reads a bound: a number, or a duration in nanoseconds.
func bound(s string) float64 {
	if s == "" {
		return 0
	}
	if d, err := time.ParseDuration(s); err == nil {
		return float64(d)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(fmt.Sprintf("range with the bound %q: want a number or a duration", s))
	}
	return f
}

// holds reports whether x lies in s.
func (s span) holds(x float64) bool {
	return (s.low == "" || x > s.from || (x == s.from && !s.above)) && (s.high == "" || x <= s.to)
}

// String prints " from 0 to 100", " of at least 1" or " above 0 and at most 1".
func (s span) String() string {
	switch {
	case s.low == "":
		return ""
	case s.high == "" && s.above:
		return " above " + s.low
	case s.high == "":
		return " of at least " + s.low
	case s.above:
		return " above " + s.low + " and at most " + s.high
	}
	return " from " + s.low + " to " + s.high
}

// homes returns every place of a whole, a file or a ConfigMap, at which a key of
// this name may stand, such as "resource-threshold-config" or "rules[]".
func homes(whole reflect.Type, name string) []string {
	var found []string
	var visit func(t reflect.Type, path string)
	visit = func(t reflect.Type, path string) {
		for _, k := range keysOf(t) {
			if k.name == name {
				found = append(found, path)
			}
			child, under := t.FieldByIndex(k.index).Type, join(path, k.name)
			if child.Kind() == reflect.Slice {
				child, under = child.Elem(), under+"[]"
			}
			if child.Kind() == reflect.Struct && !isLeaf(reflect.Zero(child)) {
				visit(child, under)
			}
		}
	}
	visit(whole, "")
	return found
}

// join returns the path of a key in the mapping at path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
