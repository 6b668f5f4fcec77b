package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Trials are the trials of isolation mechanisms on the services of a node: pairs
// of short epochs, one with a candidate and one without it.
type Trials struct {
	// Kept is the mechanism that a trial kept; empty: the floor, which is the
	// least weight with long slices. Since is the time since which it is kept.
	Kept  string       `json:"kept,omitempty"`
	Since *metav1.Time `json:"since,omitempty"`
	// Trying is the candidate of the trial in progress; empty: none.
	Trying string `json:"trying,omitempty"`
	// Why says what the agent does, or what it waits for.
	Why string `json:"why,omitempty"`
	// Results are the trials of the last round, in their order.
	// +listType=atomic
	Results []TrialResult `json:"results,omitempty"`
}

// TrialResult is the result of one trial.
type TrialResult struct {
	Candidate string `json:"candidate"`
	// Against is the mechanism of the other epochs; empty: the floor.
	Against string `json:"against,omitempty"`
	// Finding is kept, no gain, worse, harms one, stopped or failed.
	Finding string `json:"finding"`
	Why     string `json:"why,omitempty"`
	// Ended is the time of the end of the trial, on the clock of the node.
	Ended metav1.Time `json:"ended"`
	// Pairs is the number of pairs of epochs that count.
	Pairs int32 `json:"pairs"`
	// Without and With are the mean time of a wait of all services, without the
	// candidate and with it.
	Without metav1.Duration `json:"without,omitempty"`
	With    metav1.Duration `json:"with,omitempty"`
	// Ratio is the waiting for each wait with the candidate, in thousandths of
	// that without it. Low and High bound it with an error of 1.25 % on each
	// side. 0: too few pairs.
	Ratio int64 `json:"ratio,omitempty"`
	Low   int64 `json:"low,omitempty"`
	High  int64 `json:"high,omitempty"`
	// Services are the services of the trial, those that waited longest first.
	// More is the number of those that are left out.
	// +listType=atomic
	Services []TrialService `json:"services,omitempty"`
	More     int32          `json:"more,omitempty"`
}

// TrialService is one service in a trial. The pods of a Deployment are one
// service.
type TrialService struct {
	Name string `json:"name"`
	// Pairs is the number of pairs in which it waited often enough to be judged.
	Pairs int32 `json:"pairs"`
	// Without is its waiting in an hour without the candidate, and With that of
	// as many waits with it.
	Without metav1.Duration `json:"without"`
	With    metav1.Duration `json:"with"`
}
