package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/config/syntax"
	"tenon.sh/tenon/internal/model/node"
)

// ParseConfigMap reads the data of the ConfigMap slo-controller-config or
// ack-slo-config. A key with a fault counts as missing; the other keys stay
// valid. The line number of a fault is relative to its key's text.
func ParseConfigMap(data map[string]string) (Cluster, []Fault) {
	return ParseConfigMapOver(Cluster{}, data)
}

// ReadConfigMap returns the data of a ConfigMap that stands as a manifest in a file.
func ReadConfigMap(manifest []byte) (map[string]string, error) {
	var object struct {
		Kind string            `yaml:"kind"`
		Data map[string]string `yaml:"data"`
	}
	if err := yaml.Unmarshal(manifest, &object); err != nil {
		return nil, fmt.Errorf("read a ConfigMap: %w", err)
	}
	if object.Kind != "ConfigMap" {
		return nil, fmt.Errorf("read a ConfigMap: kind %.80q: want ConfigMap", object.Kind)
	}
	return object.Data, nil
}

// ParseConfigMapOver is like ParseConfigMap. But a key with a fault keeps its content from the
// last Cluster. A missing key has its defaults.
func ParseConfigMapOver(last Cluster, data map[string]string) (Cluster, []Fault) {
	c := Cluster{texts: map[string]string{}}
	s := source{data: data, last: last.texts, to: &c}
	take(&s, keyThreshold, "nodeStrategies", &c.threshold, last.threshold, rules[Threshold]{findInert: func(v Threshold) []Fault { return (&Strategies{Threshold: v}).leaveOut() }})
	take(&s, keyQOS, "nodeStrategies", &c.qos, last.qos, rules[QOS]{findInert: func(v QOS) []Fault { return (&Strategies{QOS: v}).leaveOut() }})
	take(&s, keyBurst, "nodeStrategies", &c.burst, last.burst, rules[Burst]{})
	take(&s, keyColocation, "nodeConfigs", &c.colocation, last.colocation, rules[Colocation]{findInert: func(v Colocation) []Fault { return (&Strategies{Colocation: v}).leaveOut() }})
	take(&s, keySystem, "nodeStrategies", &c.system, last.system, rules[System]{})
	take(&s, keyHostApps, "nodeConfigs", &c.hostApps, last.hostApps, rules[HostApplications]{findFaults: HostApplications.faults})
	take(&s, keyNormalization, "nodeConfigs", &c.normalization, last.normalization, rules[Normalization]{})
	take(&s, keyAmplification, "nodeConfigs", &c.amplification, last.amplification, rules[Amplification]{})
	take(&s, keyObjective, "nodeConfigs", &c.objectives, last.objectives, rules[PodObjectives]{findFaults: objectiveFaults})
	take(&s, keyBatch, "", &c.batch, last.batch, rules[Batch]{})
	take(&s, keyRollout, "", &c.rollout, last.rollout, rules[Rollout]{findFaults: Rollout.faults, exact: true})
	unread := func(key string) bool {
		_, given := data[key]
		_, read := c.texts[key]
		return given && !read
	}
	c.batchUnread = unread(keyBatch)
	c.rolloutUnread = unread(keyRollout) || c.rollout.all.Enable.Or(false) && unread(keyColocation)
	if t := c.threshold.all; t.Enable.Or(false) && !t.MemoryEvictThresholdPercent.Known() {
		c.notices = append(c.notices, noMemoryEviction)
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(clusterKeys, name) {
			c.notices = append(c.notices, Fault{Field: label(name), Problem: Suggest(name, clusterKeys)}.String())
		}
	}
	return c, s.faults
}

var clusterKeys = []string{keyThreshold, keyQOS, keyBurst, keyColocation, keySystem, keyHostApps, keyNormalization, keyAmplification, keyObjective, keyBatch, keyRollout}

// noMemoryEviction is a notice for a ConfigMap that was written for Koordinator, because
// Koordinator's chart enables the feature gate of memory evictions.
const noMemoryEviction = "resource-threshold-config.clusterStrategy.memoryEvictThresholdPercent is not set, so memory that runs short evicts no work; Koordinator's chart evicts at 70: write 70, or 0 to confirm"

// rules are checks of a key that the struct tags cannot express.
type rules[T any] struct {
	// findInert returns notices for the values that have no effect.
	findInert func(T) []Fault
	// findFaults returns the faults of the values.
	findFaults func(T) []Fault
	// exact means that unknown keys are faults.
	exact bool
}

// A source is a ConfigMap that is parsed key by key.
type source struct {
	data, last map[string]string
	to         *Cluster
	faults     []Fault
}

// take parses the key with this name. list is the name of its list of entries
// for some nodes, or empty if it has none. take applies the rules to the settings of each entry.
func take[T any](s *source, name, list string, to *layers[T], last layers[T], also rules[T]) {
	text, given := s.data[name]
	if !given {
		return
	}
	r := layerReader[T]{key: name, list: list, rules: also}
	read := r.layers(text)
	if !strings.Contains(strings.TrimSpace(text), "\n") {
		// The fault gets the path of the key but no line number, because the text of
		// a key often has only one line.
		for _, found := range [][]Fault{r.faults, r.notices} {
			for i := range found {
				found[i].Line = 0
			}
		}
	}
	for _, n := range r.notices {
		s.to.notices = append(s.to.notices, n.String())
	}
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
	rules[T]
	faults, notices []Fault
}

// An entry has settings for the nodes that it selects. If it has no selector, or one with a
// fault, it selects no node.
type entry struct {
	Name     node.Maybe[string]
	Selector *Selector
}

// entryKeys are the keys of an entry that are not settings.
type entryKeys struct {
	Name     node.Maybe[string] `json:"name,omitzero"`
	Selector Selector           `json:"nodeSelector,omitzero"`
}

func (r *layerReader[T]) layers(text string) layers[T] {
	var l layers[T]
	if text == "" { // a template writes it for an unset value
		return l
	}
	root, err := syntax.JSON(text)
	if err != nil {
		r.faults = append(r.faults, Fault{Field: r.key, Problem: err.Error()})
		return l
	}
	if isUnset(root) {
		return l
	}
	if root.Kind != yaml.MappingNode {
		r.faults = append(r.faults, Fault{Line: root.Line, Field: r.key, Problem: printValue(root) + ": want keys and values"})
		return l
	}
	all, at := root, r.key
	r.spell(root, r.key, r.list)
	syntax.TakeRepeated(root, []string{r.list, "clusterStrategy"}, func(first, again *yaml.Node) {
		r.notices = append(r.notices, Fault{Line: again.Line, Field: join(r.key, label(again.Value)), Problem: givenTwice(first, again)})
	})
	some := syntax.Take(root, r.list)
	if r.list == "nodeStrategies" {
		at = join(r.key, "clusterStrategy")
		r.spell(root, r.key, "clusterStrategy")
		all = syntax.Take(root, "clusterStrategy")
		r.strangers(root)
	}
	lines := &parser{}
	if all != nil {
		l.all, lines = r.strategy(all, at)
	}
	faults, inert := r.check(l.all, nil)
	r.addAt(lines, faults, inert, at)
	known := slices.Concat(faults, inert)
	if some == nil || isUnset(some) {
		return l
	}
	if some.Kind != yaml.SequenceNode {
		r.faults = append(r.faults, Fault{Line: some.Line, Field: join(r.key, r.list), Problem: printValue(some) + ": want a list"})
		return l
	}
	for i, item := range some.Content {
		if len(r.faults) > maxFaults {
			break
		}
		l.some = append(l.some, r.layer(item, fmt.Sprintf("%s.%s[%d]", r.key, r.list, i), l.all, known))
	}
	r.notices = append(r.notices, findOverlaps(l.some)...)
	return l
}

// layer reads an entry. It does not repeat a fault that the entry inherits from
// the settings of all nodes.
func (r *layerReader[T]) layer(n *yaml.Node, at string, all T, inherited []Fault) layer[T] {
	e := layer[T]{path: at}
	if n.Kind != yaml.MappingNode {
		r.faults = append(r.faults, Fault{Line: n.Line, Field: at, Problem: printValue(n) + ": want keys and values, such as nodeSelector: …"})
		return e
	}
	r.spell(n, at, "name", "nodeSelector")
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
	selected := syntax.Take(&yaml.Node{Content: slices.Clone(who.Content)}, "nodeSelector")
	keys, p := readMapping[entryKeys](who, "", false)
	c := checker{bad: p.faultyFields(), lenient: true}
	c.checkMapping(reflect.ValueOf(keys), "")
	c.checkSelector(keys.Selector, "nodeSelector")
	for _, f := range c.faults {
		p.notices = append(p.notices, Fault{Line: p.lineOf(f.Field), Field: f.Field, Problem: f.Problem + "; this entry applies to no node"})
	}
	r.add(p, "", at)
	e.Name = keys.Name
	switch {
	case selected == nil || isUnset(selected):
		r.notices = append(r.notices, Fault{Field: at, Problem: "it has no nodeSelector, so it applies to no node"})
	case len(c.faults) == 0:
		e.Selector = &keys.Selector
	}
	own, lines := r.strategy(n, at)
	e.own = own
	faults, inert := r.check(inherit(own, all), inherited)
	r.addAt(lines, faults, inert, at)
	return e
}

// strategy reads the settings at a path (at).
func (r *layerReader[T]) strategy(n *yaml.Node, at string) (T, *parser) {
	v, p := readMapping[T](n, r.key, r.exact)
	c := checker{bad: p.faultyFields(), lenient: true}
	c.checkMapping(reflect.ValueOf(v), r.key)
	for _, f := range c.faults {
		p.faults = append(p.faults, Fault{Line: p.lineOf(f.Field), Field: f.Field, Problem: f.Problem})
	}
	r.add(p, r.key, at)
	return v, p
}

// check applies the rules to v. It returns faults, and notices for values
// without an effect or that are hardly meant. It omits the known faults.
func (r *layerReader[T]) check(v T, known []Fault) (faults, inert []Fault) {
	if len(r.faults) > 0 {
		return nil, nil
	}
	isKnown := func(f Fault) bool { return slices.Contains(known, f) }
	if r.findFaults != nil {
		faults = slices.DeleteFunc(r.findFaults(v), isKnown)
	}
	if r.findInert != nil {
		inert = slices.DeleteFunc(r.findInert(v), isKnown)
	}
	return faults, append(inert, slices.DeleteFunc(unlikely(reflect.ValueOf(v), r.key), isKnown)...)
}

// spell corrects the keys of the mapping at a path (at) that differ from a
// known name only by case.
func (r *layerReader[T]) spell(n *yaml.Node, at string, known ...string) {
	syntax.Spell(n, known, func(name *yaml.Node, to string) {
		r.notices = append(r.notices, Fault{Line: name.Line, Field: join(at, label(name.Value)), Problem: renamedTo(to)})
	})
}

// add adds the faults and notices of p. In their fields, it replaces the prefix
// oldPath by newPath.
func (r *layerReader[T]) add(p *parser, oldPath, newPath string) {
	slices.SortStableFunc(p.faults, func(a, b Fault) int { return a.Line - b.Line })
	for _, f := range p.faults {
		f.Field = movePath(f.Field, oldPath, newPath)
		r.faults = append(r.faults, f)
	}
	for _, f := range p.notices {
		f.Field = movePath(f.Field, oldPath, newPath)
		r.notices = append(r.notices, f)
	}
}

// addAt adds faults and notices, with the line numbers that p has for their
// fields. At the front of each field, it replaces the name of the key by path.
func (r *layerReader[T]) addAt(p *parser, faults, notices []Fault, path string) {
	placed := func(f Fault) Fault {
		return Fault{Line: p.lineOf(f.Field), Field: movePath(f.Field, r.key, path), Problem: f.Problem}
	}
	for _, f := range faults {
		r.faults = append(r.faults, placed(f))
	}
	for _, f := range notices {
		r.notices = append(r.notices, placed(f))
	}
}

// strangers adds a notice for each key that is neither clusterStrategy nor the list of entries.
func (r *layerReader[T]) strangers(root *yaml.Node) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		name := root.Content[i]
		problem := Suggest(name.Value, []string{"clusterStrategy", r.list})
		if slices.ContainsFunc(keysOf(reflect.TypeFor[T]()), func(k key) bool { return k.name == name.Value }) {
			problem = "unknown key here: it belongs in clusterStrategy"
		}
		r.notices = append(r.notices, Fault{Line: name.Line, Field: join(r.key, label(name.Value)), Problem: problem})
	}
}
