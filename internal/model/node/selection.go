package node

import "time"

// Selection is the isolation mechanism in use, with the reasons against all
// others. The policy that selects the mechanism fills it in.
type Selection struct {
	// Mechanism is the mechanism in use; empty: isolation is off.
	Mechanism Mechanism `json:"rung,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Why is the reason in one sentence.
	Why string `json:"why,omitempty"`
	// Pinned is the mechanism that the configuration or an operator requested;
	// empty: Tenon selects the strongest that the node supports.
	Pinned Mechanism `json:"pinned,omitempty"`
	// ByHand: an operator requested Pinned, and not the configuration.
	ByHand bool `json:"by_hand,omitempty"`
	// Mechanisms lists all mechanisms in preference order.
	Mechanisms []MechanismStatus `json:"rungs,omitempty"`
	// Slotless is the number of BE workloads that share slot 0 of the BE
	// scheduler, without a weight and a quota of their own, because all other
	// slots are taken.
	Slotless int `json:"slotless,omitempty"`
	// Failures are the mechanism failures of the last hour, the oldest first.
	Failures []Failure `json:"falls,omitempty"`
}

// MechanismStatus is the state of one isolation mechanism.
type MechanismStatus struct {
	Mechanism Mechanism `json:"rung"`
	// Can says whether this node supports it; Why is the evidence.
	Can Verdict `json:"can"`
	Why string  `json:"why,omitempty"`
	// Failures is the number of its failures in the last hour.
	Failures int `json:"falls,omitempty"`
	// Down: it failed too often. Tenon does not try it before Retry unless an
	// operator requests it.
	Down bool `json:"down,omitempty"`
	// Retry is the time of the next try after a failure; zero: none planned.
	Retry time.Time `json:"retry,omitzero"`
}
