package config

import (
	"fmt"
	"path"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// HistoryDirectory is where an agent that observes keeps its history if the
// configuration does not say it.
const HistoryDirectory = "/var/lib/tenon/history"

// History says where the agent keeps what the node did, minute by minute.
type History struct {
	// Directory is an absolute path. If it is empty, the agent keeps nothing.
	Directory string
	// Size is the greatest size of all files there. The oldest are removed first.
	Size unit.Bytes
}

// history is the value of the key history in the configuration file.
type history struct {
	Directory node.Maybe[string]     `json:"directory"`
	Size      node.Maybe[unit.Bytes] `json:"size"`
}

// The sizes of a history: the default is five weeks of a hundred busy workloads.
const (
	defaultHistory = 32 << 20
	leastHistory   = 1 << 20
	mostHistory    = 1 << 30
)

func (h history) history() History {
	return History{Directory: h.Directory.Or(""), Size: h.Size.Or(defaultHistory)}
}

func (c *checker) checkHistory(h history) {
	if dir, given := h.Directory.Value(); given && (!path.IsAbs(dir) || path.Clean(dir) == "/") {
		c.fault("history.directory", quote(dir)+": want an absolute path, such as "+HistoryDirectory)
	}
	if size, given := h.Size.Value(); given && (size < leastHistory || size > mostHistory) {
		c.fault("history.size", fmt.Sprintf("%d bytes: want 1Mi to 1Gi", int64(size)))
	}
}
