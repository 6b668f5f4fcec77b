// Package history keeps what a node did, minute by minute, for some weeks: a row
// for the node, one for each workload, and one for each pair of which one waited
// for the other.
//
// A day is a file. A minute is appended to it and never changed, so that a tear
// at the end of a file loses that minute only. Minutes that were not seen are
// not there: no reader gets a value that nobody measured.
package history

import "slices"

// A Kind is what a row is about.
type Kind int

// The kinds.
const (
	Node Kind = iota // one row; its name is ""
	Work             // the name is that of a workload
	Pair             // the name is that of PairName
	kinds
)

// Columns are the names of the columns of each kind. All values are whole numbers
// from 0. The files name their columns, so that a reader finds those that it
// knows in files of other versions.
var Columns = [kinds][]string{
	Node: {
		"cpu_mcpu", "cpu_max_mcpu", "steal_mcpu", "memory_mib", "working_set_mib",
		"cpu_some_ms", "memory_some_ms", "memory_full_ms", "io_some_ms", "io_full_ms",
		"room_cpu_mcpu", "room_memory_mib",
	},
	Work: {
		"class", "cpu_mcpu", "cpu_max_mcpu", "request_mcpu", "limit_mcpu", "working_set_mib", "throttled_ms",
		"wait_ms", "wait_p99_bucket", "refaults", "memory_stall_ms",
	},
	Pair: {"wait_ms"},
}

// Absent is the value of a column that is not known.
const Absent = -1

// A Row has the values of one minute, in the order of Columns.
type Row struct {
	Name   string
	Values []int64
}

// A Minute is what was measured in one minute. The rows of a kind have different
// names, and their order means nothing.
type Minute struct {
	At   int64 // minutes since 1970
	Rows [kinds][]Row
}

// pairMark stands between the two names of a pair. No name of a cgroup has it.
const pairMark = "\x00"

// PairName returns the name of the row of two workloads.
func PairName(waiter, runner string) string { return waiter + pairMark + runner }

// Column returns the place of a column in the values of a row, or -1.
func Column(k Kind, name string) int { return slices.Index(Columns[k], name) }

const minutesOfDay = 24 * 60
