// Package contracttext writes and reads the annotations in which a scheduler
// tells a node which CPUs it chose for a pod. It uses no reflection, to save
// CPU: a scheduler writes the annotations of each pod that it binds.
package contracttext

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Version is the version of the format of a choice.
const Version = 2

// The parts of the text of a choice, in their order.
const (
	begin      = `{"v":2,"topology":"`
	policy     = `","policy":"`
	list       = `","cpus":"`
	domain     = `,"domain":"`
	containers = `,"containers":{`
)

// AppendChoice appends the text of a choice (the annotation tenon.sh/cpus).
func AppendChoice(b []byte, c *cpus.Choice) []byte {
	b = append(append(b, begin...), c.Topology.String()...)
	b = append(append(b, policy...), c.Policy.String()...)
	b = append(c.CPUs.Append(append(b, list...)), '"')
	if !c.Domain.Empty() {
		b = append(c.Domain.Append(append(b, domain...)), '"')
	}
	if len(c.Containers) > 0 {
		b = append(b, containers...)
		for i, name := range slices.Sorted(maps.Keys(c.Containers)) {
			if i > 0 {
				b = append(b, ',')
			}
			set := c.Containers[name]
			b = append(set.Append(append(appendString(b, name), `:"`...)), '"')
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

// A Share holds the resources that a pod gets from one NUMA node. CPU and
// Memory are quantities of the Kubernetes API. Empty ones are omitted.
type Share struct {
	NUMA        node.NUMANode
	CPU, Memory string
}

// AppendStatus appends the pod's own CPUs and its shares in Koordinator's form
// (the annotation resource-status).
func AppendStatus(b []byte, own unit.CPUSet, shares []Share) []byte {
	b = append(b, '{')
	if !own.Empty() {
		b = append(own.Append(append(b, `"cpuset":"`...)), '"')
	}
	for i, s := range shares {
		switch {
		case i > 0:
			b = append(b, ',')
		case own.Empty():
			b = append(b, `"numaNodeResources":[`...)
		default:
			b = append(b, `,"numaNodeResources":[`...)
		}
		b = strconv.AppendInt(append(b, `{"node":`...), int64(s.NUMA), 10)
		b = append(b, `,"resources":{`...)
		if s.CPU != "" {
			b = append(append(append(b, `"cpu":"`...), s.CPU...), '"')
		}
		if s.Memory != "" {
			if s.CPU != "" {
				b = append(b, ',')
			}
			b = append(append(append(b, `"memory":"`...), s.Memory...), '"')
		}
		b = append(b, `}}`...)
	}
	if len(shares) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

// AppendACK appends the chosen CPUs in ACK's form (the annotation cpuset),
// nested as container, NUMA node, elems, CPU. A container without CPUs of its
// own gets all CPUs of the pod. m is the topology of the node.
func AppendACK(b []byte, names []string, m *pick.Map, c *cpus.Choice) []byte {
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), `:{`...)
		set, has := c.Containers[name]
		if !has {
			set = c.CPUs
		}
		first := true
		for numa, part := range m.Nodes(set) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = strconv.AppendInt(append(b, '"'), int64(numa), 10)
			b = append(b, `":{"elems":`...)
			before := byte('{')
			for cpu := range part.All() {
				b = strconv.AppendInt(append(b, before, '"'), int64(cpu), 10)
				b = append(b, `":{}`...)
				before = ','
			}
			b = append(b, `}}`...)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendString appends a JSON string, quoted like encoding/json does.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			text, _ := json.Marshal(s) //nolint:errcheck // a string is always valid
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// ReadChoice reads a choice in exactly the form that AppendChoice writes.
// It returns false for any other text, even if that is valid JSON with the same
// choice.
func ReadChoice(text string) (cpus.Choice, bool) {
	r := reader{rest: text}
	var c cpus.Choice
	var hashed, known bool
	r.expect(begin)
	c.Topology, hashed = cpus.ParseHash(r.until(policy))
	c.Policy, known = cpus.ParsePolicy(r.until(list))
	c.CPUs = r.set()
	if r.next(domain) {
		c.Domain = r.set()
	}
	if r.next(containers) {
		c.Containers = map[string]unit.CPUSet{}
		for more := true; more && !r.failed; more = r.next(",") {
			r.expect(`"`)
			name := r.until(`":"`)
			c.Containers[name] = r.set()
		}
		r.expect("}")
	}
	r.expect("}")
	if r.failed || !hashed || !known || r.rest != "" {
		return cpus.Choice{}, false
	}
	return c, true
}

// A reader parses a text from left to right.
type reader struct {
	rest   string
	failed bool
}

// next skips part if the rest of the text begins with it, and reports whether it does.
func (r *reader) next(part string) bool {
	rest, is := strings.CutPrefix(r.rest, part)
	r.rest = rest
	return is
}

func (r *reader) expect(part string) {
	if !r.next(part) {
		r.failed = true
	}
}

// until returns the string up to its closing quotation mark. It then skips
// part, which begins with that mark. It fails if the string has escapes or
// bytes that are not ASCII.
func (r *reader) until(part string) string {
	for i := range len(r.rest) {
		switch c := r.rest[i]; {
		case c == '"':
			text := r.rest[:i]
			r.rest = r.rest[i:]
			r.expect(part)
			return text
		case c < ' ' || c > '~' || c == '\\':
			r.failed = true
			return ""
		}
	}
	r.failed = true
	return ""
}

func (r *reader) set() unit.CPUSet {
	set, err := unit.ParseCPUSet(r.until(`"`))
	if err != nil {
		r.failed = true
	}
	return set
}
