package node

import "time"

// A LadderStatus says which rung is in use, and why no other is. It is what
// the policy that owns the ladder tells of its decision.
type LadderStatus struct {
	// Rung is the one in use; empty: none, isolation is off.
	Rung  Rung      `json:"rung,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Why is the reason in one sentence.
	Why string `json:"why,omitempty"`
	// Pinned is the rung that the configuration or an operator has asked for;
	// empty: the strongest that the node can carry.
	Pinned Rung `json:"pinned,omitempty"`
	// ByHand: an operator has asked for it, and not the configuration.
	ByHand bool `json:"by_hand,omitempty"`
	// Rungs are all rungs, from the strongest down.
	Rungs []RungStatus `json:"rungs,omitempty"`
	// Slotless is how many BE workloads share slot 0 of the BE scheduler, without
	// a weight and a quota of their own, because all other slots are taken.
	Slotless int `json:"slotless,omitempty"`
	// Falls are those of the last hour, the oldest first.
	Falls []Fall `json:"falls,omitempty"`
}

// A RungStatus is what is to be said of one rung.
type RungStatus struct {
	Rung Rung `json:"rung"`
	// Can says whether this node can carry it; Why is the evidence.
	Can Verdict `json:"can"`
	Why string  `json:"why,omitempty"`
	// Falls is how often it fell in the last hour.
	Falls int `json:"falls,omitempty"`
	// Down: it fell too often, and is not tried before Retry unless an operator
	// asks for it.
	Down bool `json:"down,omitempty"`
	// Retry is when it is tried again after a fall; zero: it is not waiting.
	Retry time.Time `json:"retry,omitzero"`
}
