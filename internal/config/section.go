package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"tenon.sh/tenon/internal/config/syntax"
)

// strategy returns the mapping with the keys of the section at a path. Without a mapping, it
// adds a fault and returns nil. There are three notations. The keys may be in the section
// itself, or under clusterStrategy as in Koordinator's ConfigMap. Or the section is a JSON text,
// as in that ConfigMap; then all keys have the line of the text.
func (p *parser) strategy(n *yaml.Node, path string, k key) *yaml.Node {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		p.pinned = p.lines[path]
		root, err := syntax.JSON(n.Value)
		if err != nil {
			p.fault(p.pinned, path, fmt.Sprintf("%s: want keys and values, or the JSON text of a ConfigMap: %v", printValue(n), err))
			p.pinned = 0
			return nil
		}
		n = root
	}
	if n.Kind != yaml.MappingNode {
		return n
	}
	syntax.TakeRepeated(n, []string{k.section, "clusterStrategy"}, func(first, again *yaml.Node) { p.refuseRepeated(first, again, path) })
	own := &yaml.Node{Kind: yaml.MappingNode, Tag: n.Tag, Line: n.Line}
	var cluster *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		switch {
		case name.Value == k.section:
			p.refuseOtherNodes(name, value, path)
		case name.Value == "clusterStrategy" && k.section == "nodeStrategies":
			cluster = value
		default:
			own.Content = append(own.Content, name, value)
		}
	}
	if cluster == nil {
		return own
	}
	for i := 0; i < len(own.Content); i += 2 {
		name := own.Content[i]
		p.fault(p.line(name), join(path, label(name.Value)), "this key is beside clusterStrategy: want it inside, or no clusterStrategy")
	}
	return cluster
}

// refuseOtherNodes adds a fault if a section has a list of settings for some
// nodes of a cluster. The file has only one node, without labels by which an
// entry could select it. An empty list is accepted.
func (p *parser) refuseOtherNodes(name, value *yaml.Node, path string) {
	if isNull(value) || value.Kind == yaml.SequenceNode && len(value.Content) == 0 {
		return
	}
	p.fault(p.line(name), join(path, name.Value), "belongs to Kubernetes, where one ConfigMap serves many nodes: write the settings of this node directly in "+path)
}
