package node

import "time"

// Selection is the isolation mechanism in use. For each other mechanism it has
// the reason why Tenon does not use it.
type Selection struct {
	// Mechanism is the mechanism in use. It is empty if isolation is off.
	Mechanism Mechanism `json:"mechanism,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Why says in one sentence why Mechanism is in use.
	Why string `json:"why,omitempty"`
	// Pinned is the mechanism that the configuration or an operator requested.
	// If it is empty, Tenon selects the mechanism itself.
	Pinned Mechanism `json:"pinned,omitempty"`
	// ByHand says that Pinned comes from an operator and not from the configuration.
	ByHand bool `json:"by_hand,omitempty"`
	// Mechanisms lists all mechanisms in preference order.
	Mechanisms []MechanismStatus `json:"mechanisms,omitempty"`
	// Slotless is the number of BE workloads without a slot of their own, because all slots
	// are taken. They share slot 0, without a weight or a quota.
	Slotless int `json:"slotless,omitempty"`
	// Failures are the mechanism failures of the last hour, the oldest first.
	Failures []Failure `json:"failures,omitempty"`
}

// MechanismStatus is the state of one isolation mechanism.
type MechanismStatus struct {
	Mechanism Mechanism `json:"mechanism"`
	// Can says whether this node supports the mechanism. Why is the evidence for Can.
	Can Verdict `json:"can"`
	Why string  `json:"why,omitempty"`
	// Failures is the number of times that the mechanism failed in the last hour.
	Failures int `json:"failures,omitempty"`
	// Down says that the mechanism failed too often. Until Retry, Tenon uses it
	// only if an operator requests it.
	Down bool `json:"down,omitempty"`
	// Retry is the time of the next attempt after a failure. It is zero if none is planned.
	Retry time.Time `json:"retry,omitzero"`
}
