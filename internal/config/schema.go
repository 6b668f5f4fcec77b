package config

import (
	"reflect"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// A key is one key of the file. The struct that receives the file is also its
// schema. These tags of a field describe its key:
//
//	json     its name
//	range    the accepted numbers: "0..100", "1..", ">0..1", "100ms..60s"
//	oneof    the accepted words; MECHANISM stands for each isolation mechanism
//	taken    other values that Koordinator accepts, as a range or as words; *
//	         stands for all words. In a ConfigMap or an annotation they cause
//	         a notice, and have no effect
//	later    this version reads and checks the key, but does not support it.
//	         The value of the tag, such as false, is a value of the key that
//	         requests nothing
//	strict   in a ConfigMap or an annotation, an unknown key below this key is
//	         a fault instead of a notice
//	likely   the numbers that an author can mean. Others are valid and count, as
//	         in Koordinator, but cause a notice
//	section  the key is also a key of Koordinator's ConfigMap. The value of the
//	         tag is the name of its list of entries for some nodes
type key struct {
	name    string
	index   []int
	span    span
	words   []string
	taken   span     // values outside of span that have no effect
	inert   []string // words that have no effect
	likely  span
	later   bool
	strict  bool
	off     string
	section string
}

// keysOf returns the keys of the mapping that fills a struct of type t.
func keysOf(t reflect.Type) []key {
	var keys []key
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue // VisibleFields also returns its fields
		}
		k := key{index: f.Index, span: parseSpan(f.Tag.Get("range")), words: wordsOf(f.Tag.Get("oneof")), section: f.Tag.Get("section"), likely: parseSpan(f.Tag.Get("likely"))}
		k.name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
		if taken := f.Tag.Get("taken"); strings.Contains(taken, "..") {
			k.taken = parseSpan(taken)
		} else {
			k.inert = strings.Fields(taken)
		}
		k.off, k.later = f.Tag.Lookup("later")
		_, k.strict = f.Tag.Lookup("strict")
		keys = append(keys, k)
	}
	return keys
}

// wordsOf returns the words of the tag oneof.
func wordsOf(tag string) []string {
	var words []string
	for word := range strings.FieldsSeq(tag) {
		if word != "MECHANISM" {
			words = append(words, word)
			continue
		}
		for _, m := range node.Mechanisms {
			words = append(words, string(m))
		}
	}
	return words
}

// isInert reports whether a word has no effect, although Koordinator accepts it.
func (k key) isInert(word string) bool {
	return !slices.Contains(k.words, word) && (slices.Contains(k.inert, word) || slices.Contains(k.inert, "*"))
}

// isLeaf reports whether v is a node.Maybe, which is a single value instead of a mapping.
func isLeaf(v reflect.Value) bool {
	_, leaf := v.Interface().(interface{ Known() bool })
	return leaf
}

// These texts describe the accepted values of keys without a range or words.
const (
	aBool     = "true or false"
	aWhole    = "a whole number"
	aNumber   = "a number"
	aDuration = "a duration"
	aText     = "text"
)

// want describes the accepted values of k, such as "a whole number from 0 to 100".
func (k key) want(noun string) string {
	switch {
	case len(k.words) == 1:
		return k.words[0]
	case len(k.words) > 1:
		return "one of " + strings.Join(k.words, ", ")
	}
	return noun + k.span.String()
}

// homes returns the places of a file or ConfigMap where a key with this name
// may be, such as "resource-threshold-config" or "rules[]".
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

// join returns the path of a key (name) in the mapping at a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
