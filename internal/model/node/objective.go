package node

import (
	"slices"
	"time"
)

// An Objective is the latency objective of an LS workload. The zero Objective is none.
type Objective struct {
	// RunQueueDelay is an objective for the waits of the workload's threads for
	// a CPU: 99 of 100 waits should be shorter.
	RunQueueDelay Maybe[time.Duration] `json:"run_queue_delay,omitzero"`
	// TooStrict is such an objective that the administrator does not allow, because it
	// is too short. It is not judged.
	TooStrict Maybe[time.Duration] `json:"too_strict,omitzero"`
	// Requests is an objective for the time in which it answers requests.
	Requests RequestObjective `json:"requests,omitzero"`
}

// A RequestObjective says how fast a workload should answer requests, and where
// their durations are read.
type RequestObjective struct {
	// Within has a target for some of the Percentiles, in their order: this part of
	// the requests should be answered within this time. 0: no target. If one target
	// is missed, the objective is missed.
	Within [len(Percentiles)]time.Duration `json:"within_ns,omitzero"`
	Source RequestSource                   `json:"source,omitempty"`
	// Port and Path are where the workload itself shows its metrics over HTTP, for
	// SourceMetrics. For SourceSocket, Port is where it answers requests, and the fields
	// below are empty.
	Port int    `json:"port,omitempty"`
	Path string `json:"path,omitempty"`
	// Series is the histogram of the durations.
	Series Series `json:"series,omitzero"`
}

// A Series is a Prometheus histogram: its name without the suffix _bucket, and its
// unit. Its time series with these Labels are added up. Unused entries of Labels
// are zero.
type Series struct {
	Family string           `json:"family,omitempty"`
	Unit   time.Duration    `json:"unit_ns,omitempty"`
	Labels [MaxLabels]Label `json:"labels,omitzero"`
}

// A Label is a label of a time series.
type Label struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
}

// MaxLabels is the number of labels that a Series can have.
const MaxLabels = 4

// Judged reports whether there is an objective that may be kept or missed.
func (o Objective) Judged() bool { return o.RunQueueDelay.Known() || o.Requests.Stated() }

// Stated reports whether there is an objective for requests.
func (o RequestObjective) Stated() bool { return o.Within != [len(Percentiles)]time.Duration{} }

// A Percentile is a part of the requests: Permille of 1000.
type Percentile struct {
	Name     string
	Permille int64
}

// Percentiles are those for which an objective may have a target.
var Percentiles = [...]Percentile{{"p50", 500}, {"p75", 750}, {"p90", 900}, {"p95", 950}, {"p99", 990}, {"p99.9", 999}}

// A RequestSource is where durations of requests are read.
type RequestSource string

// The sources.
const (
	// SourceMetrics is a Prometheus histogram that the workload itself shows.
	SourceMetrics RequestSource = "metrics"
	// SourceSocket is the TCP sockets of the workload, which the kernel watches.
	SourceSocket RequestSource = "socket"
	// SourceQuery is the same histogram in the Prometheus server of the cluster.
	SourceQuery RequestSource = "query"
)

// Requests are the requests that a workload has answered, by duration, as its
// source counted them at a time.
type Requests struct {
	// At is the time of the last reading that could be used, on the clock of the
	// snapshot. It is zero if there was none.
	At time.Time `json:"at,omitzero"`
	// Bounds are the upper bounds of the buckets, in ascending order. Counts are the
	// requests in each bucket and, in one bucket more, the longer ones.
	Bounds []time.Duration `json:"bounds_ns,omitempty"`
	Counts []uint64        `json:"counts,omitempty"`
	// Unsure is how often the source could not tell how long a request took. Such
	// requests are in no bucket.
	Unsure uint64 `json:"unsure,omitempty"`
	// Trouble says why a later reading could not be used. It is empty if the last
	// reading is the one above.
	Trouble SourceTrouble `json:"trouble,omitempty"`
}

// Equal reports whether r and o are the same reading.
func (r Requests) Equal(o Requests) bool {
	return r.At.Equal(o.At) && r.Trouble == o.Trouble && r.Unsure == o.Unsure && slices.Equal(r.Bounds, o.Bounds) && slices.Equal(r.Counts, o.Counts)
}

// A SourceTrouble is the reason why a source of durations could not be used.
type SourceTrouble string

// Forbids reports whether the source must not be used. The other reasons may pass.
func (t SourceTrouble) Forbids() bool {
	return t == TroubleOff || t == TroubleTooStrict || t == TroubleHostNetwork
}

// The reasons.
const (
	// TroubleOff: the administrator has switched the source off.
	TroubleOff SourceTrouble = "off"
	// TroubleTooStrict: the objective is shorter than the administrator allows.
	TroubleTooStrict SourceTrouble = "below-least"
	// TroubleHostNetwork: the pod has the address of its node, where the port may
	// belong to another program.
	TroubleHostNetwork SourceTrouble = "host-network"
	// TroubleNoAddress: the pod has no address yet.
	TroubleNoAddress SourceTrouble = "no-address"
	// TroubleTooMany: too many workloads of the node have such an objective.
	TroubleTooMany SourceTrouble = "too-many"
	// TroubleConnect: the connection failed.
	TroubleConnect SourceTrouble = "connect"
	// TroubleTLS: the server does not prove that it has its name.
	TroubleTLS SourceTrouble = "tls"
	// TroubleSlow: the answer took too long.
	TroubleSlow SourceTrouble = "slow"
	// TroubleRedirect: the answer is a redirection, which is not followed.
	TroubleRedirect SourceTrouble = "redirect"
	// TroubleStatus: the answer has another status than 200.
	TroubleStatus SourceTrouble = "status"
	// TroubleContent: the answer does not have a format of Prometheus.
	TroubleContent SourceTrouble = "content"
	// TroubleTooLarge: the answer, or the histogram in it, is too large.
	TroubleTooLarge SourceTrouble = "too-large"
	// TroubleAbsent: the answer does not have the histogram.
	TroubleAbsent SourceTrouble = "absent"
	// TroubleDamaged: the counts of the histogram contradict each other.
	TroubleDamaged SourceTrouble = "damaged"
	// TroubleReset: a count is smaller than before, or the buckets are others.
	TroubleReset SourceTrouble = "reset"
	// TroubleStale: no reading for too long.
	TroubleStale SourceTrouble = "stale"
	// TroubleNoHook: the kernel does not show when sockets send and receive data.
	TroubleNoHook SourceTrouble = "no-hook"
	// TroubleProbe: the program that watches sockets could not be loaded or read.
	TroubleProbe SourceTrouble = "probe"
	// TroubleFuture: the reading is later than the clock of the node.
	TroubleFuture SourceTrouble = "future"
	// TroublePartial: the server says that its answer is not complete.
	TroublePartial SourceTrouble = "partial"
	// TroubleNoPrometheus: the administrator has named no Prometheus server.
	TroubleNoPrometheus SourceTrouble = "no-prometheus"
	// TroubleNoAnswer: the manager has not answered yet.
	TroubleNoAnswer SourceTrouble = "no-answer"
)
