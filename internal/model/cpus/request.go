// Package cpus has the values that say which CPUs a pod asks for, which CPUs it
// has, and why it does not have what it asked for. The ledger of the scheduler,
// the node's agent, its report and the pages of kubectl tenon share them.
package cpus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"tenon.sh/tenon/internal/model/unit"
)

// A Policy is the way in which a workload holds CPUs.
type Policy uint8

// The values of Policy. The zero Policy means that a workload asks for no CPUs.
const (
	// Exclusive means that no other LS work may use the CPUs.
	Exclusive Policy = iota + 1
	// Shared means that the work has a fixed number of CPUs inside its domain. It
	// shares the domain with other work of the policies Shared and Pool.
	Shared
	// Pool means that the work may use all CPUs of its domain, except those that
	// other work has exclusively.
	Pool
)

// policies are the names of the policies, in annotations and reports.
var policies = [...]string{"", "exclusive", "shared", "pool"}

// String returns the name of the policy. Annotations and reports use it.
func (p Policy) String() string {
	if int(p) >= len(policies) {
		return "?"
	}
	return policies[p]
}

// Policies returns the names of all policies.
func Policies() []string { return slices.Clone(policies[1:]) }

// ParsePolicy reads what String prints for one of the policies.
func ParsePolicy(text string) (Policy, bool) {
	i := slices.Index(policies[:], text)
	return Policy(max(i, 0)), i > 0
}

// MarshalText implements encoding.TextMarshaler.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (p *Policy) UnmarshalText(text []byte) error {
	i := slices.Index(policies[:], string(text))
	if i < 0 {
		return fmt.Errorf("policy of CPUs %.64q: want exclusive, shared or pool", text)
	}
	*p = Policy(i)
	return nil
}

// A Level is a level of the tree of a machine's CPUs. The root of the tree is the
// node. Below it are its sockets, then their NUMA nodes, then the L3 caches of
// each NUMA node. If several NUMA nodes share an L3 cache (sub-NUMA clustering),
// the cache counts once for each of them.
type Level uint8

// The levels, from the root to the leaves.
const (
	Machine Level = iota
	Socket
	NUMA
	L3
	Levels // the number of levels
)

// String returns the name of the level. All texts use these names.
func (l Level) String() string { return [...]string{"node", "socket", "NUMA node", "L3 cache"}[l] }

// One returns the name of a place of the level, for texts: "one L3 cache".
func (l Level) One() string {
	if l == Machine {
		return "the node"
	}
	return "one " + l.String()
}

// Bind says how a request for exclusive CPUs treats the hardware threads of a core.
type Bind uint8

// The values of Bind.
const (
	// AnyCores prefers few NUMA nodes, then few L3 caches, then whole cores.
	AnyCores Bind = iota
	// PreferWhole takes whole cores wherever they are. If there are not enough,
	// it has the effect of AnyCores.
	PreferWhole
	// OnlyWhole takes whole cores of one size, or nothing.
	OnlyWhole
	// PreferSpread takes one CPU of each core. If there are not enough cores,
	// it has the effect of AnyCores.
	PreferSpread
	// OnlySpread takes one CPU of each core, or nothing.
	OnlySpread
)

// An ExclusivePolicy says that a workload does not share its cores, or its NUMA
// nodes, with workloads of the same ExclusivePolicy, as long as there is another
// place. It shares them with all other work (preferredCPUExclusivePolicy of
// Koordinator).
type ExclusivePolicy uint8

// The values of ExclusivePolicy, with Koordinator's names.
const (
	NotExclusive ExclusivePolicy = iota
	PCPULevel
	NUMANodeLevel
	ExclusivePolicies // the number of values
)

// exclusives are the names of the values in annotations and reports.
var exclusives = [...]string{"", "PCPULevel", "NUMANodeLevel"}

// String returns Koordinator's name.
func (e ExclusivePolicy) String() string { return exclusives[e] }

// ParseExclusivePolicy reads what String prints.
func ParseExclusivePolicy(text string) (ExclusivePolicy, bool) {
	i := slices.Index(exclusives[:], text)
	return ExclusivePolicy(max(i, 0)), i >= 0
}

// A Request says which CPUs a workload asks for. It is comparable.
type Request struct {
	Policy Policy `json:"policy,omitempty"`
	// CPUs is the number of exclusive or shared CPUs.
	CPUs int `json:"cpus,omitempty"`
	// CPU is the amount of CPU that work with the policy Shared or Pool requests.
	CPU  unit.MilliCPU `json:"cpu_mcpu,omitempty"`
	Bind Bind          `json:"bind,omitempty"`
	// Within is a level. One place of this level must contain all CPUs. The level
	// Machine sets no bound.
	Within Level `json:"within,omitempty"`
	// Fewest says that the CPUs must not be on more NUMA nodes than they would
	// need on an empty machine.
	Fewest bool `json:"fewest,omitempty"`
	// Exclusive is a preference. If no place meets it, it has no effect.
	Exclusive ExclusivePolicy `json:"exclusive,omitempty"`
}

// A PodRequest is the request of a pod.
type PodRequest struct {
	Request
	// Grows says that a pool may use more CPUs than those of its domain.
	Grows bool `json:"grows,omitempty"`
	// Containers are the containers with CPUs of their own, in the order of the
	// pod. Their CPUs add up to those of the request. If there are none, the CPUs
	// are for the pod as a whole.
	Containers []ContainerRequest `json:"containers,omitempty"`
	// Memory is the memory that the pod requests.
	Memory unit.Bytes `json:"memory,omitempty"`
}

// A ContainerRequest is the number of CPUs of one container.
type ContainerRequest struct {
	Name string `json:"name"`
	CPUs int    `json:"cpus"`
}

// Equal reports whether two pods ask for the same.
func (r *PodRequest) Equal(o *PodRequest) bool {
	return r.Request == o.Request && r.Grows == o.Grows && r.Memory == o.Memory && slices.Equal(r.Containers, o.Containers)
}

// A Choice says which CPUs a scheduler chose for a pod on its node.
type Choice struct {
	// Topology is the topology for which the scheduler chose. It is 0 if the
	// scheduler did not write it.
	Topology Hash   `json:"topology,omitempty"`
	Policy   Policy `json:"policy,omitempty"`
	// CPUs are exclusive or shared CPUs. For a pool they are the CPUs of the pool
	// that were open when the pod was bound. Domain are all CPUs of the place in
	// which the pod shares CPUs. For exclusive CPUs, Domain is empty.
	CPUs   unit.CPUSet `json:"cpus,omitzero"`
	Domain unit.CPUSet `json:"domain,omitzero"`
	// Containers divides CPUs among the containers. If it is nil, the CPUs are
	// for the pod as a whole.
	Containers map[string]unit.CPUSet `json:"containers,omitempty"`
}

// Equal reports whether two choices are the same.
func (c *Choice) Equal(o *Choice) bool {
	return c.Topology == o.Topology && c.Policy == o.Policy && c.CPUs == o.CPUs && c.Domain == o.Domain && maps.Equal(c.Containers, o.Containers)
}

// Matches reports whether a choice has the policy and the number of CPUs of a
// request. A forged choice can therefore not give a pod more than it asks for.
func (c *Choice) Matches(r Request) bool {
	if c.Policy != r.Policy {
		return false
	}
	if c.Policy == Pool {
		return !c.Domain.Empty()
	}
	return c.CPUs.Len() == r.CPUs && (c.Policy == Exclusive || c.Domain.Contains(c.CPUs))
}

// Allocation returns what a workload has if its node follows the choice.
func (c *Choice) Allocation(r Request) Allocation {
	return Allocation{Policy: c.Policy, CPUs: c.CPUs, Domain: c.Domain, CPU: r.CPU, Exclusive: r.Exclusive}
}

// A Hash identifies a topology. Two machines with the same hash have the same
// CPUs, in the same cores, caches, NUMA nodes and sockets.
type Hash uint64

// String prints 16 hexadecimal digits.
func (h Hash) String() string {
	text := strconv.FormatUint(uint64(h), 16)
	return "0000000000000000"[:16-len(text)] + text
}

// ParseHash reads what String prints. It returns false for any other text.
func ParseHash(text string) (Hash, bool) {
	h, err := strconv.ParseUint(text, 16, 64)
	return Hash(h), err == nil && Hash(h).String() == text
}

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(text []byte) error {
	hash, ok := ParseHash(string(text))
	if !ok {
		return fmt.Errorf("hash of a topology %.64q: want 16 hexadecimal digits", text)
	}
	*h = hash
	return nil
}
