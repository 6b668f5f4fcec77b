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

	// A workload asks for no number of CPUs, or the node cannot bind it.
	NoNumber
	FractionalCPU
	NoCPUSet
	CPUSetMissing

	// A node has too few open CPUs for a workload.
	NoneOpen
	ClosedToCgroup
	ForServices
	MustStay
	NoWholeCores

	// A node chose CPUs itself.
	NoChoice
	ChoiceNotPossible
	ChoiceForTopology
	ChoiceForPolicy
	ChoiceForNumber
	ChoiceOffline
	ChoiceReserved
	ChoiceClosed
	ChoiceTaken
	ChoiceLeavesTooFew
	ChoiceWithoutDomain
	ChoiceFull
	DomainLost

	codes
)

// words has, for each Code, the word in reports and records, and the text for a
// message. A message of the scheduler puts the number of nodes before the text:
// "3 no room for seats: ...".
var words = [codes]struct{ word, kind, text string }{
	Fits:     {"", "", ""},
	NoDemand: {"NoDemand", "", "the demand is for no CPU"},

	TooFewOpen:   {"TooFewOpen", "no room for own CPUs", "too few are open"},
	LastOpen:     {"LastOpen", "no room for own CPUs", "the last open ones stay open"},
	NeededShared: {"NeededShared", "no room for own CPUs", "pods with seats or pools need the open ones"},
	TooFewNear:   {"TooFewNear", "no room for own CPUs", "no single NUMA node can give enough"},
	TooManyNodes: {"TooManyNodes", "no room for own CPUs", "they would be on more NUMA nodes than they need"},
	NotWhole:     {"NotWhole", "no room for own CPUs", "the number is not a number of whole cores"},
	TooFewWhole:  {"TooFewWhole", "no room for own CPUs", "too few whole cores can be given"},
	TooFewCores:  {"TooFewCores", "no room for own CPUs", "too few cores can give a CPU"},

	TooFewShared:     {"TooFewShared", "no room for seats", "too few CPUs are open"},
	TooFewSharedNear: {"TooFewSharedNear", "no room for seats", "too few CPUs of each NUMA node are open"},
	SharedRequested:  {"SharedRequested", "no room for seats", "pods with seats or pools request the open CPUs"},

	TooFewPool:     {"TooFewPool", "no room for a pool", "too few CPUs are open"},
	TooFewPoolNear: {"TooFewPoolNear", "no room for a pool", "too few CPUs of each NUMA node are open"},
	PoolRequested:  {"PoolRequested", "no room for a pool", "pods with seats or pools request the open CPUs"},

	NoReport:     {"NoReport", "", "no agent has reported the CPUs of the node"},
	Stale:        {"Stale", "", "the report of the node's agent is too old"},
	OtherManager: {"OtherManager", "", "another manager binds CPUs on the node"},
	NotHere:      {"NotHere", "", "the pod is reserved on another node"},

	NoNumber:      {"NoNumber", "", "requests no number of CPUs"},
	FractionalCPU: {"FractionalCPU", "", "requests an amount of CPU that is not a whole number of CPUs"},
	NoCPUSet:      {"NoCPUSet", "", "is in a cgroup without the cpuset controller"},
	CPUSetMissing: {"CPUSetMissing", "", "the files of its cpuset are missing now"},

	NoneOpen:       {"NoneOpen", "", "none is open"},
	ClosedToCgroup: {"ClosedToCgroup", "", "its cgroup may use too few open ones"},
	ForServices:    {"ForServices", "", "too few open ones can be given, because of services without own CPUs"},
	MustStay:       {"MustStay", "", "too few open ones can be given, because some must stay open"},
	NoWholeCores:   {"NoWholeCores", "", "the CPUs that it has cannot become whole cores"},

	NoChoice:            {"NoChoice", "", "no scheduler chose CPUs for it"},
	ChoiceNotPossible:   {"ChoiceNotPossible", "", "its scheduler's choice was not possible then"},
	ChoiceForTopology:   {"ChoiceForTopology", "", "its scheduler's choice is for another topology"},
	ChoiceForPolicy:     {"ChoiceForPolicy", "", "its scheduler's choice is for another policy"},
	ChoiceForNumber:     {"ChoiceForNumber", "", "its scheduler's choice has another number of CPUs"},
	ChoiceOffline:       {"ChoiceOffline", "", "its scheduler's choice has CPUs that are not online"},
	ChoiceReserved:      {"ChoiceReserved", "", "its scheduler's choice has reserved CPUs"},
	ChoiceClosed:        {"ChoiceClosed", "", "its scheduler's choice has CPUs that its cgroup may not use"},
	ChoiceTaken:         {"ChoiceTaken", "", "its scheduler's choice has CPUs that others hold"},
	ChoiceLeavesTooFew:  {"ChoiceLeavesTooFew", "", "its scheduler's choice leaves too few CPUs to share"},
	ChoiceWithoutDomain: {"ChoiceWithoutDomain", "", "its scheduler's choice names no CPUs to share"},
	ChoiceFull:          {"ChoiceFull", "", "its scheduler's choice has no open CPU"},
	DomainLost:          {"DomainLost", "", "its home before has no open CPU any more"},
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
	if words[c].kind == "" {
		return words[c].text
	}
	return words[c].kind + ": " + words[c].text
}

// IsAboutPod reports whether the text of the code with a word, as a report has it,
// has the pod as its subject. The codes for a choice of CPUs are about the choice,
// which a node did not follow.
func IsAboutPod(word string) bool {
	var c Code
	return word != "" && c.UnmarshalText([]byte(word)) == nil && (c < NoChoice || c > DomainLost)
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
