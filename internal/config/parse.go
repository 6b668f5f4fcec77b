package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/config/syntax"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// maxFaults is the maximum number of faults in an error. A longer list does not
// help a user whose file is completely wrong.
const maxFaults = 100

// A parser walks through a YAML document and, at the same time, through the struct
// that it fills. It records the line of each field for later checks.
type parser struct {
	faults []Fault
	lines  map[string]int
	meant  []string // fields whose key was probably misspelt
	pinned int      // line of the JSON text in the file, while that text is read; 0: none
	// lenient means that the source is a ConfigMap or an annotation. An unknown
	// key then causes a notice instead of a fault, and null leaves a key unset.
	lenient bool
	// exact means that unknown keys are faults here nevertheless.
	exact   bool
	notices []Fault
}

// read parses a file. It returns the content and all faults, in the order of lines.
func read(data []byte) (file, []Fault) {
	p := parser{lines: map[string]int{}}
	var f file
	root, wrong := syntax.YAML(data)
	for _, e := range wrong {
		p.fault(e.Line, "", e.Problem)
	}
	if root != nil {
		p.lines[""] = root.Line
		p.value(root, "", key{}, reflect.ValueOf(&f).Elem())
		if root.Kind == yaml.MappingNode || isNull(root) {
			for _, fault := range f.faults(p.faults, p.meant) {
				p.fault(p.lineOf(fault.Field), fault.Field, fault.Problem)
			}
		}
	}
	slices.SortStableFunc(p.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	if p.full() {
		p.faults = append(p.faults[:maxFaults], Fault{Problem: fmt.Sprintf("there are more faults: these are the first %d", maxFaults)})
	}
	return f, p.faults
}

func (p *parser) fault(line int, field, problem string) {
	if !p.full() {
		p.faults = append(p.faults, Fault{Line: line, Field: field, Problem: fmt.Sprintf("%.800s", problem)})
	}
}

func (p *parser) full() bool { return len(p.faults) > maxFaults }

// line returns the line of n in the file.
func (p *parser) line(n *yaml.Node) int {
	if p.pinned > 0 {
		return p.pinned
	}
	return n.Line
}

// lineOf returns the line of a field. For a field without a line, it returns the line of
// the enclosing field.
func (p *parser) lineOf(field string) int {
	for {
		if line, ok := p.lines[field]; ok || field == "" {
			return line
		}
		field = parent(field)
	}
}

// value reads the node n into the field at path. k describes the key of the field.
func (p *parser) value(n *yaml.Node, path string, k key, to reflect.Value) {
	if k.section != "" {
		if n = p.strategy(n, path, k); n == nil {
			return
		}
		defer func() { p.pinned = 0 }()
	}
	if k.strict {
		before := p.exact
		p.exact = true
		defer func() { p.exact = before }()
	}
	if n.Kind == yaml.AliasNode {
		p.fault(p.line(n), path, syntax.NoAlias(n.Value))
		return
	}
	switch leaf := to.Addr().Interface().(type) {
	case *string:
		scalar(p, n, path, k, leaf, readText)
	case *Duration:
		scalar(p, n, path, k, leaf, readInterval)
	case *node.Maybe[bool]:
		readOptional(p, n, path, k, leaf, readBool)
	case *node.Maybe[string]:
		readOptional(p, n, path, k, leaf, readText)
	case *node.Maybe[int64]:
		readOptional(p, n, path, k, leaf, readWhole[int64])
	case *node.Maybe[float64]:
		readOptional(p, n, path, k, leaf, readNumber)
	case *node.Maybe[time.Duration]:
		readOptional(p, n, path, k, leaf, readDuration)
	case *node.Maybe[unit.Percent]:
		readOptional(p, n, path, k, leaf, readWhole[unit.Percent])
	case *node.Maybe[unit.MilliCPU]:
		readOptional(p, n, path, k, leaf, readCPU)
	case *node.Maybe[unit.Bytes]:
		readOptional(p, n, path, k, leaf, readBytes)
	case *node.Maybe[Bandwidth]:
		readOptional(p, n, path, k, leaf, readBandwidth)
	default:
		p.readInner(n, path, k, to)
	}
}

// readInner reads n, which must be a mapping or a list. It reads a key without
// a value as an empty mapping or list, because all keys below may be comments.
func (p *parser) readInner(n *yaml.Node, path string, k key, to reflect.Value) {
	switch empty := isNull(n) || p.lenient && isEmpty(n); to.Kind() {
	case reflect.Struct:
		if !empty {
			p.mapping(n, path, to)
		}
	case reflect.Slice:
		if !empty {
			p.list(n, path, to)
		}
	case reflect.Map:
		if !empty {
			p.readNamed(n, path, k, to)
		}
	default:
		panic("config: no reader for the type " + to.Type().String())
	}
}

func (p *parser) mapping(n *yaml.Node, path string, to reflect.Value) {
	known := keysOf(to.Type())
	if n.Kind != yaml.MappingNode {
		p.fault(p.line(n), path, printValue(n)+": want keys and values, such as "+known[0].name+": …")
		return
	}
	if p.lenient && !p.exact {
		syntax.Spell(n, namesOf(known), func(name *yaml.Node, to string) {
			p.notices = append(p.notices, Fault{Line: p.line(name), Field: join(path, label(name.Value)), Problem: renamedTo(to)})
		})
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content) && !p.full(); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		child := join(path, label(name.Value))
		switch {
		case name.Kind != yaml.ScalarNode:
			p.fault(p.line(name), path, printValue(name)+" is not a key: want a name")
			continue
		case name.Tag == "!!merge":
			p.fault(p.line(name), path, "the merge key << is not accepted: write the values out")
			continue
		case first[name.Value] != nil:
			p.refuseRepeated(first[name.Value], name, path)
			continue
		}
		first[name.Value] = name
		at := slices.IndexFunc(known, func(k key) bool { return k.name == name.Value })
		if at < 0 {
			problem, meant := p.unknownKey(name.Value, known)
			if p.lenient && !p.exact {
				p.notices = append(p.notices, Fault{Line: p.line(name), Field: child, Problem: problem})
				continue
			}
			p.fault(p.line(name), child, problem)
			if meant != "" {
				p.meant = append(p.meant, join(path, meant))
			}
			continue
		}
		p.lines[child] = p.line(name)
		p.value(value, child, known[at], to.FieldByIndex(known[at].index))
	}
}

// refuseRepeated adds a fault for a key that occurs again in the mapping at a path.
func (p *parser) refuseRepeated(first, again *yaml.Node, path string) {
	problem := "this key occurs twice"
	if line := p.line(first); line != p.line(again) {
		problem += fmt.Sprintf(", first in line %d", line)
	}
	p.fault(p.line(again), join(path, label(again.Value)), problem)
}

func (p *parser) list(n *yaml.Node, path string, to reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		p.fault(p.line(n), path, printValue(n)+": want a list")
		return
	}
	for i, item := range n.Content {
		if p.full() {
			return
		}
		child := fmt.Sprintf("%s[%d]", path, i)
		p.lines[child] = p.line(item)
		to.Set(reflect.Append(to, reflect.Zero(to.Type().Elem())))
		p.value(item, child, key{}, to.Index(i))
	}
}

// readNamed reads a mapping whose keys are chosen by the user. It skips a map
// of arbitrary values, because no code reads that map.
func (p *parser) readNamed(n *yaml.Node, path string, k key, to reflect.Value) {
	if n.Kind != yaml.MappingNode {
		p.fault(p.line(n), path, printValue(n)+": want keys and values")
		return
	}
	elem := to.Type().Elem()
	if elem.Kind() == reflect.Interface {
		return
	}
	to.Set(reflect.MakeMap(to.Type()))
	for i := 0; i+1 < len(n.Content) && !p.full(); i += 2 {
		name, value := n.Content[i], reflect.New(elem).Elem()
		child := path + "[" + label(name.Value) + "]"
		p.lines[child] = p.line(name)
		p.value(n.Content[i+1], child, key{span: k.span, words: k.words}, value)
		to.SetMapIndex(reflect.ValueOf(name.Value), value)
	}
}
