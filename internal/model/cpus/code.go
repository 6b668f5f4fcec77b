package cpus

import (
	"fmt"
	"slices"
)

// A Code says why a workload does not get the CPUs that it asks for. It is Fits
// if it gets them.
//
// A Code has no numbers. A scheduler counts the nodes with each Code, for a
// message and a metric, without allocating memory.
type Code uint8

// The codes. Requests within another level than NUMA get the codes about NUMA
// nodes, too. Pods do not make such requests.
const (
	Fits Code = iota
	NoDemand

	// A machine has no room for exclusive CPUs.
	TooFewOpen
	LastOpen
	NeededShared
	TooFewNear
	TooManyNodes
	NotWhole
	TooFewWhole
	TooFewCores

	// A machine has no room for shared CPUs.
	TooFewShared
	TooFewSharedNear
	SharedRequested

	// A machine has no room for a pool.
	TooFewPool
	TooFewPoolNear
	PoolRequested

	// A node of a cluster takes no pods now, or not this pod.
	NoReport
	Stale
	OtherManager
	NotHere

	codes
)

// words has, for each Code, the word in reports and records, and the text for a
// message. A message of the scheduler puts the number of nodes before the text:
// "3 no room for seats: ...".
var words = [codes]struct{ word, text string }{
	Fits:     {"", ""},
	NoDemand: {"NoDemand", "the demand is for no CPU"},

	TooFewOpen:   {"TooFewOpen", "no room for own CPUs: too few are open"},
	LastOpen:     {"LastOpen", "no room for own CPUs: the last open ones stay open"},
	NeededShared: {"NeededShared", "no room for own CPUs: pods with seats or pools need the open ones"},
	TooFewNear:   {"TooFewNear", "no room for own CPUs: no single NUMA node can give enough"},
	TooManyNodes: {"TooManyNodes", "no room for own CPUs: they would be on more NUMA nodes than they need"},
	NotWhole:     {"NotWhole", "no room for own CPUs: the number is not a number of whole cores"},
	TooFewWhole:  {"TooFewWhole", "no room for own CPUs: too few whole cores can be given"},
	TooFewCores:  {"TooFewCores", "no room for own CPUs: too few cores can give a CPU"},

	TooFewShared:     {"TooFewShared", "no room for seats: too few CPUs are open"},
	TooFewSharedNear: {"TooFewSharedNear", "no room for seats: too few CPUs of each NUMA node are open"},
	SharedRequested:  {"SharedRequested", "no room for seats: pods with seats or pools request the open CPUs"},

	TooFewPool:     {"TooFewPool", "no room for a pool: too few CPUs are open"},
	TooFewPoolNear: {"TooFewPoolNear", "no room for a pool: too few CPUs of each NUMA node are open"},
	PoolRequested:  {"PoolRequested", "no room for a pool: pods with seats or pools request the open CPUs"},

	NoReport:     {"NoReport", "no agent has reported the CPUs of the node"},
	Stale:        {"Stale", "the report of the node's agent is too old"},
	OtherManager: {"OtherManager", "another manager binds CPUs on the node"},
	NotHere:      {"NotHere", "the pod is reserved on another node"},
}

// String returns the word of the code, which programs compare.
func (c Code) String() string {
	if c >= codes {
		return "?"
	}
	return words[c].word
}

// Text returns the code as a text without numbers, or "" for Fits.
func (c Code) Text() string {
	if c >= codes {
		return "?"
	}
	return words[c].text
}

// Refusals returns the codes with which a node refuses a pod in the ledger.
func Refusals() []Code {
	all := make([]Code, 0, NotHere)
	for c := NoDemand; c <= NotHere; c++ {
		all = append(all, c)
	}
	return all
}

// MarshalText implements encoding.TextMarshaler.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (c *Code) UnmarshalText(text []byte) error {
	for i := range words {
		if words[i].word == string(text) {
			*c = Code(i)
			return nil
		}
	}
	return fmt.Errorf("code of a reason %.64q: want one of %v", text, slices.Sorted(wordsOf))
}

// wordsOf yields the words of all codes but Fits.
func wordsOf(yield func(string) bool) {
	for _, w := range words[1:] {
		if !yield(w.word) {
			return
		}
	}
}
