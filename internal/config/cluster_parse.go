package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/config/syntax"
	"tenon.sh/tenon/internal/model/node"
)

// ParseConfigMap reads the data of the ConfigMap slo-controller-config or
// ack-slo-config. A key with a fault counts as missing; the other keys are
// valid. Faults have the line within the text of their key.
func ParseConfigMap(data map[string]string) (Cluster, []Fault) {
	return ParseConfigMapOver(Cluster{}, data)
}

// ParseConfigMapOver is ParseConfigMap, except that a key with a fault keeps
// its content from the last Cluster. A key that is missing has defaults.
func ParseConfigMapOver(last Cluster, data map[string]string) (Cluster, []Fault) {
	c := Cluster{texts: map[string]string{}}
	s := source{data: data, last: last.texts, to: &c}
	take(&s, keyThreshold, "nodeStrategies", &c.threshold, last.threshold, func(v Threshold) []Fault { return Strategies{Threshold: v}.unordered() })
	take(&s, keyQOS, "nodeStrategies", &c.qos, last.qos, func(v QOS) []Fault { return Strategies{QOS: v}.unordered() })
	take(&s, keyBurst, "nodeStrategies", &c.burst, last.burst, nil)
	take(&s, keyColocation, "nodeConfigs", &c.colocation, last.colocation, nil)
	take(&s, keySystem, "nodeStrategies", &c.system, last.system, nil)
	take(&s, keyHostApps, "nodeConfigs", &c.hostApps, last.hostApps, HostApplications.faults)
	take(&s, keyNormalization, "nodeConfigs", &c.normalization, last.normalization, nil)
	take(&s, keyAmplification, "nodeConfigs", &c.amplification, last.amplification, nil)
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(clusterKeys, name) {
			c.notices = append(c.notices, Fault{Field: label(name), Problem: suggest(name, clusterKeys)}.String())
		}
	}
	return c, s.faults
}

var clusterKeys = []string{keyThreshold, keyQOS, keyBurst, keyColocation, keySystem, keyHostApps, keyNormalization, keyAmplification}

// A source is a ConfigMap that is parsed key by key.
type source struct {
	data, last map[string]string
	to         *Cluster
	faults     []Fault
}

// take parses a key and its list of entries for some nodes. unordered returns
// the contradictions in the resulting settings.
func take[T any](s *source, name, list string, to *layers[T], last layers[T], unordered func(T) []Fault) {
	text, given := s.data[name]
	if !given {
		return
	}
	r := layerReader[T]{key: name, list: list, unordered: unordered}
	read := r.layers(text)
	s.to.notices = append(s.to.notices, r.notices...)
	if len(r.faults) == 0 {
		*to, s.to.texts[name] = read, text
		return
	}
	if n := len(r.faults); n > maxFaults {
		r.faults = append(r.faults[:maxFaults], Fault{Field: name, Problem: fmt.Sprintf("there are more faults: these are the first %d", maxFaults)})
	}
	s.faults = append(s.faults, r.faults...)
	*to = last
	if text, given := s.last[name]; given {
		s.to.texts[name] = text
	}
}

// A layerReader parses the text of one key.
type layerReader[T any] struct {
	key, list string
	unordered func(T) []Fault
	faults    []Fault
	notices   []string
}

// An entry has settings for some nodes. Without a selector it applies to none.
type entry struct {
	Name     node.Maybe[string]
	Selector *selector
}

// entryKeys are the keys of an entry besides its settings.
type entryKeys struct {
	Name     node.Maybe[string] `json:"name,omitzero"`
	Selector selector           `json:"nodeSelector,omitzero"`
}

func (r *layerReader[T]) layers(text string) layers[T] {
	var l layers[T]
	root, err := syntax.JSON(text)
	if err != nil {
		r.faults = append(r.faults, Fault{Field: r.key, Problem: err.Error()})
		return l
	}
	if isNull(root) {
		return l
	}
	if root.Kind != yaml.MappingNode {
		r.faults = append(r.faults, Fault{Line: root.Line, Field: r.key, Problem: shown(root) + ": want keys and values"})
		return l
	}
	all, at := root, r.key
	some := pick(root, r.list)
	if r.list == "nodeStrategies" {
		at = join(r.key, "clusterStrategy")
		all = pick(root, "clusterStrategy")
		r.strangers(root)
	}
	lines := &parser{}
	if all != nil {
		l.all, lines = r.strategy(all, at)
	}
	wrong := r.check(l.all, nil)
	r.addAt(lines, wrong, at)
	if some == nil || isNull(some) {
		return l
	}
	if some.Kind != yaml.SequenceNode {
		r.faults = append(r.faults, Fault{Line: some.Line, Field: join(r.key, r.list), Problem: shown(some) + ": want a list"})
		return l
	}
	for i, item := range some.Content {
		if len(r.faults) > maxFaults {
			break
		}
		l.some = append(l.some, r.layer(item, fmt.Sprintf("%s.%s[%d]", r.key, r.list, i), l.all, wrong))
	}
	return l
}

// layer reads an entry. It does not repeat the inherited faults.
func (r *layerReader[T]) layer(n *yaml.Node, at string, all T, inherited []Fault) layer[T] {
	e := layer[T]{at: at}
	if n.Kind != yaml.MappingNode {
		r.faults = append(r.faults, Fault{Line: n.Line, Field: at, Problem: shown(n) + ": want keys and values, such as nodeSelector: …"})
		return e
	}
	who := &yaml.Node{Kind: yaml.MappingNode, Tag: n.Tag, Line: n.Line}
	for _, name := range []string{"name", "nodeSelector"} {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				who.Content = append(who.Content, n.Content[i], n.Content[i+1])
				n.Content = slices.Delete(n.Content, i, i+2)
				i -= 2
			}
		}
	}
	selected := pick(&yaml.Node{Content: slices.Clone(who.Content)}, "nodeSelector")
	keys, p := readMapping[entryKeys](who, "")
	c := checker{bad: p.bad()}
	c.mapping(reflect.ValueOf(keys), "")
	c.selector(keys.Selector, "nodeSelector")
	for _, f := range c.faults {
		p.faults = append(p.faults, Fault{Line: p.lineOf(f.Field), Field: f.Field, Problem: f.Problem})
	}
	r.add(p, "", at)
	e.Name = keys.Name
	if selected != nil && !isNull(selected) {
		e.Selector = &keys.Selector
	} else {
		r.notices = append(r.notices, at+" has no nodeSelector, so it applies to no node")
	}
	own, lines := r.strategy(n, at)
	e.own = own
	fill(reflect.ValueOf(&own).Elem(), reflect.ValueOf(all))
	r.addAt(lines, r.check(own, inherited), at)
	return e
}

// strategy reads the settings at a place.
func (r *layerReader[T]) strategy(n *yaml.Node, at string) (T, *parser) {
	v, p := readMapping[T](n, r.key)
	c := checker{bad: p.bad()}
	c.mapping(reflect.ValueOf(v), r.key)
	for _, f := range c.faults {
		p.faults = append(p.faults, Fault{Line: p.lineOf(f.Field), Field: f.Field, Problem: f.Problem})
	}
	r.add(p, r.key, at)
	return v, p
}

// check returns the contradictions in v, except the known ones.
func (r *layerReader[T]) check(v T, known []Fault) []Fault {
	if r.unordered == nil || len(r.faults) > 0 {
		return nil
	}
	return slices.DeleteFunc(r.unordered(v), func(f Fault) bool { return slices.Contains(known, f) })
}

// add adds the faults and notices of p. Their fields are below the path from
// and become fields below the path at.
func (r *layerReader[T]) add(p *parser, from, at string) {
	slices.SortStableFunc(p.faults, func(a, b Fault) int { return a.Line - b.Line })
	for _, f := range p.faults {
		f.Field = moved(f.Field, from, at)
		r.faults = append(r.faults, f)
	}
	for _, f := range p.notices {
		f.Field = moved(f.Field, from, at)
		r.notices = append(r.notices, f.String())
	}
}

// addAt adds faults of values whose lines p knows.
func (r *layerReader[T]) addAt(p *parser, faults []Fault, at string) {
	for _, f := range faults {
		r.faults = append(r.faults, Fault{Line: p.lineOf(f.Field), Field: moved(f.Field, r.key, at), Problem: f.Problem})
	}
}

// strangers adds a notice for each key beside clusterStrategy and
// nodeStrategies.
func (r *layerReader[T]) strangers(root *yaml.Node) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		name := root.Content[i]
		problem := suggest(name.Value, []string{"clusterStrategy", r.list})
		if slices.ContainsFunc(keysOf(reflect.TypeFor[T]()), func(k key) bool { return k.name == name.Value }) {
			problem = "unknown key here: it belongs in clusterStrategy"
		}
		r.notices = append(r.notices, Fault{Line: name.Line, Field: join(r.key, label(name.Value)), Problem: problem}.String())
	}
}
