package config

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// ResctrlQOS configures how much L3 cache and memory bandwidth a class may use.
type ResctrlQOS struct {
	Enable               node.Maybe[bool]         `json:"enable,omitzero"`
	CATRangeStartPercent node.Maybe[unit.Percent] `json:"catRangeStartPercent,omitzero" range:"0..100"`
	CATRangeEndPercent   node.Maybe[unit.Percent] `json:"catRangeEndPercent,omitzero" range:"0..100"`
	MBAPercent           node.Maybe[unit.Percent] `json:"mbaPercent,omitzero" range:"1..100" taken:"0..100"`
}

// cache returns the shares of the classes whose resctrlQOS is enabled. LSE has
// the same share as LSR. SYSTEM work stays in the default group.
func (q QOS) cache() cache.Config {
	var c cache.Config
	for _, class := range q.classes() {
		if !class.Resctrl.Enable.Or(false) {
			continue
		}
		for _, name := range class.names {
			if name.Control() == "" {
				continue
			}
			if c.Classes == nil {
				c.Classes = map[node.Class]cache.Share{}
			}
			c.Classes[name] = cache.Share{
				Start:     valueOf(class.Resctrl.CATRangeStartPercent),
				End:       valueOf(class.Resctrl.CATRangeEndPercent),
				Bandwidth: valueOf(class.Resctrl.MBAPercent),
			}
		}
	}
	return c
}

// maxBandwidth is the maximum of memoryBandwidth. Computing its percentages
// does not overflow an integer.
const maxBandwidth unit.Bytes = 1e15

// checkMemoryBandwidth adds a fault if the bandwidth is negative, 0 or too large.
func (c *checker) checkMemoryBandwidth(m node.Maybe[unit.Bytes]) {
	if v, given := m.Value(); given && (v <= 0 || v > maxBandwidth) {
		c.fault("memoryBandwidth", fmt.Sprintf("%v: want bytes per second behind one L3 cache, such as 200G", v))
	}
}
