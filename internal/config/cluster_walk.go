package config

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/config/spelling"
)

// readMapping reads the JSON mapping at a path. An unknown key causes a notice instead of a
// fault: it may belong to a newer version, or to another program that uses the ConfigMap.
func readMapping[T any](n *yaml.Node, path string, exact bool) (T, *parser) {
	var v T
	p := &parser{lines: map[string]int{path: n.Line}, lenient: true, exact: exact}
	if !isNull(n) {
		p.value(n, path, key{}, reflect.ValueOf(&v).Elem())
	}
	return v, p
}

// faultyFields returns the fields with a fault.
func (p *parser) faultyFields() map[string]bool {
	bad := map[string]bool{}
	for _, f := range p.faults {
		bad[f.Field] = true
	}
	return bad
}

// movePath replaces the prefix oldPath of a field's path by newPath.
func movePath(field, oldPath, newPath string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(field, oldPath), ".")
	if rest == "" || strings.HasPrefix(rest, "[") {
		return newPath + rest
	}
	return join(newPath, rest)
}

// renamedTo returns the text of the notice for a key that spell has renamed.
func renamedTo(name string) string { return "counts as " + name + ": want this spelling" }

// givenTwice returns the text of the notice for a key that occurs again.
func givenTwice(first, again *yaml.Node) string {
	if first.Line == again.Line {
		return "given twice: the first one counts"
	}
	return fmt.Sprintf("given twice, in lines %d and %d: the first one counts", first.Line, again.Line)
}

// Suggest returns the problem text for an unknown key. It contains the known
// key that was probably meant.
func Suggest(name string, known []string) string {
	if near := spelling.Nearest(name, known); near != "" {
		return "unknown key: did you mean " + near + "?"
	}
	return "unknown key: this version knows " + strings.Join(known, ", ")
}
