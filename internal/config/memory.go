package config

import (
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// MemoryQOS configures how much memory is protected, and the usage at which memory is reclaimed.
// WmarkRatio and the keys after it are for Anolis OS kernels.
type MemoryQOS struct {
	Enable                node.Maybe[bool]         `json:"enable,omitzero"`
	MinLimitPercent       node.Maybe[unit.Percent] `json:"minLimitPercent,omitzero" range:"0..100"`
	LowLimitPercent       node.Maybe[unit.Percent] `json:"lowLimitPercent,omitzero" range:"0..100"`
	ThrottlingPercent     node.Maybe[unit.Percent] `json:"throttlingPercent,omitzero" range:"0..100"`
	WmarkRatio            node.Maybe[unit.Percent] `json:"wmarkRatio,omitzero" range:"0..100" later:"0"`
	WmarkScalePermill     node.Maybe[int64]        `json:"wmarkScalePermill,omitzero" range:"1..1000" later:"50"`
	WmarkMinAdj           node.Maybe[int64]        `json:"wmarkMinAdj,omitzero" range:"-25..50" later:"0"`
	PriorityEnable        node.Maybe[int64]        `json:"priorityEnable,omitzero" range:"0..1" later:"0"`
	Priority              node.Maybe[int64]        `json:"priority,omitzero" range:"0..12" later:"0"`
	OomKillGroup          node.Maybe[int64]        `json:"oomKillGroup,omitzero" range:"0..1" later:"0"`
	PageCacheEnable       node.Maybe[bool]         `json:"pageCacheEnable,omitzero" later:"false"`
	PageCacheLimitPercent node.Maybe[unit.Percent] `json:"pageCacheLimitPercent,omitzero" range:"0..100" later:""`
	PageCacheLimitSize    node.Maybe[unit.Bytes]   `json:"pageCacheLimitSize,omitzero" later:""`
	PageCacheReclaimSync  node.Maybe[bool]         `json:"pageCacheReclaimSync,omitzero" later:"false"`
}

// memory returns the memory shares of the classes whose memoryQOS has a value. The shares of a
// class with a disabled memoryQOS are in Off. LSE has the same shares as LSR.
func (q QOS) memory() memory.Config {
	var m memory.Config
	for _, class := range q.classes() {
		shares := memory.Shares{
			MinPercent:        valueOf(class.Memory.MinLimitPercent),
			LowPercent:        valueOf(class.Memory.LowLimitPercent),
			ThrottlingPercent: valueOf(class.Memory.ThrottlingPercent),
		}
		if shares == (memory.Shares{}) {
			continue
		}
		to := &m.Off
		if class.Memory.Enable.Or(false) {
			to = &m.Classes
		}
		if *to == nil {
			*to = map[node.Class]memory.Shares{}
		}
		for _, name := range class.names {
			(*to)[name] = shares
		}
	}
	return m
}
