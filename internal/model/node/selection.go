package node

import "time"

// Selection is the isolation mechanism in use, and for each other mechanism the reason
// why it is not used. The policy that selects the mechanism makes the Selection.
type Selection struct {
	// Mechanism is the mechanism in use; empty: isolation is off.
	Mechanism Mechanism `json:"rung,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Why is the reason for the mechanism, in one sentence.
	Why string `json:"why,omitempty"`
	// Pinned is the mechanism that the configuration or an operator requested;
	// empty: Tenon selects the mechanism itself.
	Pinned Mechanism `json:"pinned,omitempty"`
	// ByHand says that an operator requested Pinned, and not the configuration.
	ByHand bool `json:"by_hand,omitempty"`
	// Mechanisms lists all mechanisms in preference order.
	Mechanisms []MechanismStatus `json:"rungs,omitempty"`
	// Slotless is the number of BE workloads that share slot 0 of the BE scheduler
	// because all other slots are taken. They have no weight and no quota of their own.
	Slotless int `json:"slotless,omitempty"`
	// Failures are the mechanism failures of the last hour, the oldest first.
	Failures []Failure `json:"falls,omitempty"`
}

// MechanismStatus is the state of one isolation mechanism.
type MechanismStatus struct {
	Mechanism Mechanism `json:"rung"`
	// Can says whether this node supports the mechanism. Why is the evidence.
	Can Verdict `json:"can"`
	Why string  `json:"why,omitempty"`
	// Failures is the number of failures of the mechanism in the last hour.
	Failures int `json:"falls,omitempty"`
	// Down says that the mechanism failed too often. Tenon does not try it
	// before Retry, unless an operator requests it.
	Down bool `json:"down,omitempty"`
	// Retry is the time of the next try after a failure; zero: none planned.
	Retry time.Time `json:"retry,omitzero"`
}
