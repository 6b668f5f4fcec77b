package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/config/syntax"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A reader parses one YAML value. Its error contains the value and the accepted values.
type reader[T any] func(*yaml.Node, key) (T, error)

// readOptional reads n into a key that may stay unset. In JSON, null leaves the
// key unset. In a ConfigMap or an annotation, an empty text does the same,
// because templates write an empty text for an unset value. In YAML, a key
// without a value is a fault, because it is probably a mistake.
func readOptional[T any](p *parser, n *yaml.Node, path string, k key, to *node.Maybe[T], read reader[T]) {
	if (p.pinned > 0 || p.lenient) && isNull(n) || p.lenient && isEmpty(n) {
		return
	}
	var v T
	if scalar(p, n, path, k, &v, read) {
		*to = node.Some(v)
	}
}

// scalar reads n into a value, and reports whether n is valid.
func scalar[T any](p *parser, n *yaml.Node, path string, k key, to *T, read reader[T]) bool {
	v, err := read(n, k)
	if err != nil {
		p.fault(p.line(n), path, err.Error())
		return false
	}
	*to = v
	return true
}

// readBool reads true, false, 1 and 0, because Koordinator and ACK use both
// notations.
func readBool(n *yaml.Node, _ key) (bool, error) {
	if tag := n.ShortTag(); tag == "!!bool" || tag == "!!int" {
		switch strings.ToLower(n.Value) {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
	}
	return false, refuse(n, aBool)
}

func readText(n *yaml.Node, k key) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		return n.Value, nil
	case n.Kind == yaml.ScalarNode && !isNull(n) && len(k.words) == 0:
		return "", refuse(n, `text in quotes: "`+syntax.Clip(n.Value)+`"`)
	}
	return "", refuse(n, k.want(aText))
}

// readWhole reads a whole number, or true and false if the range of the key is 0 to 1.
func readWhole[T ~int64](n *yaml.Node, k key) (T, error) {
	if k.span.IsSwitch() && n.ShortTag() == "!!bool" {
		on, err := readBool(n, k)
		return map[bool]T{true: 1}[on], err
	}
	if n.ShortTag() == "!!int" {
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			return T(i), nil
		}
	}
	if strings.HasSuffix(n.Value, "%") {
		return 0, refuse(n, k.want(aWhole)+", without %")
	}
	return 0, refuse(n, k.want(aWhole))
}

func readNumber(n *yaml.Node, k key) (float64, error) {
	if tag := n.ShortTag(); tag == "!!int" || tag == "!!float" {
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return f, nil
		}
	}
	return 0, refuse(n, k.want(aNumber))
}

func readDuration(n *yaml.Node, k key) (time.Duration, error) {
	if n.ShortTag() == "!!str" {
		if d, err := time.ParseDuration(n.Value); err == nil {
			return d, nil
		}
	}
	return 0, refuse(n, k.want(aDuration)+", such as 1s or 500ms")
}

func readInterval(n *yaml.Node, k key) (Duration, error) {
	d, err := readDuration(n, k)
	return Duration(d), err
}

// readCPU reads an amount of CPU. Like readBytes, it accepts numbers and texts,
// because users write 2, 0.5 and 500m, all without quotes.
func readCPU(n *yaml.Node, k key) (unit.MilliCPU, error) {
	if !isAmount(n) {
		return 0, refuse(n, "a number of CPUs such as 2, 1.5 or 500m")
	}
	return unit.ParseMilliCPU(n.Value)
}

func readBytes(n *yaml.Node, k key) (unit.Bytes, error) {
	if !isAmount(n) {
		return 0, refuse(n, "bytes with an optional suffix, such as 512Mi")
	}
	return unit.ParseBytes(n.Value)
}

// isAmount reports whether n is a number or text.
func isAmount(n *yaml.Node) bool {
	tag := n.ShortTag()
	return n.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float" || tag == "!!str")
}

// isEmpty reports whether n is the empty text.
func isEmpty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value == ""
}

// isUnset reports whether n leaves a key of a ConfigMap unset: null or the empty
// text.
func isUnset(n *yaml.Node) bool { return isNull(n) || isEmpty(n) }

// isNull reports whether n is null or empty.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// refuse returns the error for a value that a reader does not accept.
func refuse(n *yaml.Node, want string) error {
	return errors.New(printValue(n) + ": want " + want)
}

// printValue prints a value for a fault, on one line.
func printValue(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case isNull(n):
		return "no value"
	case n.ShortTag() == "!!str":
		return quote(n.Value)
	}
	return label(n.Value)
}

// label prints a name or a number for a fault. It adds quotes only around unusual texts.
func label(s string) string {
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	if s == "" || len(s) > maxKey || strings.ContainsFunc(s, odd) {
		return quote(s)
	}
	return s
}

// quote prints text for a fault, in quotes.
func quote(s string) string { return fmt.Sprintf("%q", syntax.Clip(s)) }
