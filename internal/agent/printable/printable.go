// Package printable makes texts safe for a terminal and for JSON. A user who may create
// cgroups chooses their names, and a name may have line feeds, escape sequences of
// terminals, characters without a width, and bytes that are not UTF-8.
package printable

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns a text as one line. Each character that cannot be printed, and each
// byte that is not UTF-8, becomes an escape as in Go: \n, \x1b, \u202e, \xff.
func Text(text string) string {
	if isPrintable(text) {
		return text
	}
	var b strings.Builder
	for i, size := 0, 0; i < len(text); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

func isPrintable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(text) // a byte that is not UTF-8 is U+FFFD above, which can be printed
}

// Lines is Text for a text of several lines.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Text(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Value returns a deep copy of a value in which each text is one line: Text has
// changed names, and a line feed in another text is "; ", because errors that are
// joined have one.
func Value[T any](v T) T {
	change(reflect.ValueOf(&v).Elem(), func(t reflect.Type, text string) string {
		if t == reflect.TypeFor[string]() {
			text = strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
		}
		return Text(text)
	})
	return v
}

// EachText returns a deep copy of a value in which each text is what with makes of
// it: names, keys of maps, and all other texts.
func EachText[T any](v T, with func(string) string) T {
	change(reflect.ValueOf(&v).Elem(), func(_ reflect.Type, text string) string { return with(text) })
	return v
}

// change changes the texts in v, which can be set. What v points to is copied
// before. with gets the type of each text.
func change(v reflect.Value, with func(reflect.Type, string) string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(with(v.Type(), v.String()))
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		own := reflect.New(v.Elem().Type())
		own.Elem().Set(v.Elem())
		change(own.Elem(), with)
		if v.Kind() == reflect.Interface {
			own = own.Elem()
		}
		v.Set(own)
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		v.Set(own)
		changeAll(v, with)
	case reflect.Array:
		changeAll(v, with)
	case reflect.Map:
		if v.IsNil() {
			return
		}
		own := reflect.MakeMapWithSize(v.Type(), v.Len())
		for of := v.MapRange(); of.Next(); {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(of.Key())
			elem.Set(of.Value())
			change(key, with)
			change(elem, with)
			own.SetMapIndex(key, elem)
		}
		v.Set(own)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() { // other packages keep no names in fields of their own
				change(v.Field(i), with)
			}
		}
	}
}

func changeAll(v reflect.Value, with func(reflect.Type, string) string) {
	for i := range v.Len() {
		change(v.Index(i), with)
	}
}

// JSON returns a writer of JSON to w in which each character that cannot be printed
// is an escape. encoding/json escapes only those below U+0020.
func JSON(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ to io.Writer }

// Write writes whole characters of JSON.
func (w jsonWriter) Write(text []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	if _, err := io.WriteString(w.to, b.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}
