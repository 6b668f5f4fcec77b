package config

import "tenon.sh/tenon/internal/model/node"

// Batch is batch-config: how the pods of a cluster get batch resources. It has no
// entries for some nodes, because no pod has a node yet.
type Batch struct {
	// Gate gives new batch pods a scheduling gate, which the manager opens when a node
	// has room.
	Gate node.Maybe[bool] `json:"gate,omitzero"`
}
