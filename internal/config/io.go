package config

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// BlkIOQOS configures how a class uses block devices.
type BlkIOQOS struct {
	Enable node.Maybe[bool] `json:"enable,omitzero"`
	Blocks []Block          `json:"blocks,omitempty"`
}

// Block is a block device, a volume group or a pod's volume.
type Block struct {
	Name node.Maybe[string] `json:"name,omitzero"`
	Type node.Maybe[string] `json:"type,omitzero" oneof:"device volumegroup podvolume"`
	IO   IO                 `json:"ioCfg,omitzero"`
}

// IO contains the settings of one Block for all work of a class together: limits, weight and
// latency targets. Rates are per second, and 0 means no limit. Latencies are in microseconds.
type IO struct {
	ReadIOPS            node.Maybe[int64]        `json:"readIOPS,omitzero" range:"0.."`
	WriteIOPS           node.Maybe[int64]        `json:"writeIOPS,omitzero" range:"0.."`
	ReadBPS             node.Maybe[int64]        `json:"readBPS,omitzero" range:"0.."`
	WriteBPS            node.Maybe[int64]        `json:"writeBPS,omitzero" range:"0.."`
	WeightPercent       node.Maybe[unit.Percent] `json:"ioWeightPercent,omitzero" range:"1..100" taken:"0..100"`
	ReadLatency         node.Maybe[int64]        `json:"readLatency,omitzero" range:"1.." taken:"0.."`
	WriteLatency        node.Maybe[int64]        `json:"writeLatency,omitzero" range:"1.." taken:"0.."`
	ReadLatencyPercent  node.Maybe[unit.Percent] `json:"readLatencyPercent,omitzero" range:"0..100" later:""`
	WriteLatencyPercent node.Maybe[unit.Percent] `json:"writeLatencyPercent,omitzero" range:"0..100" later:""`
	EnableUserModel     node.Maybe[bool]         `json:"enableUserModel,omitzero" later:"false"`
	ModelReadBPS        node.Maybe[int64]        `json:"modelReadBPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelWriteBPS       node.Maybe[int64]        `json:"modelWriteBPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelReadSeqIOPS    node.Maybe[int64]        `json:"modelReadSeqIOPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelWriteSeqIOPS   node.Maybe[int64]        `json:"modelWriteSeqIOPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelReadRandIOPS   node.Maybe[int64]        `json:"modelReadRandIOPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelWriteRandIOPS  node.Maybe[int64]        `json:"modelWriteRandIOPS,omitzero" range:"1.." taken:"0.." later:""`
}

const (
	podVolume = "podvolume"
	aBlock    = "a device such as /dev/vda, or a volume group"
)

// io returns the block I/O settings of the classes whose blkioQOS is enabled.
// LSE and LSR get the same limits, but each class may use its limits in full.
func (q QOS) io() blockio.Config {
	var c blockio.Config
	for _, class := range q.classes() {
		if !class.BlkIO.Enable.Or(false) {
			continue
		}
		for _, block := range class.BlkIO.Blocks {
			if valueOf(block.Type) == podVolume {
				continue
			}
			for _, name := range class.names {
				if c.Classes == nil {
					c.Classes = map[node.Class][]blockio.Device{}
				}
				c.Classes[name] = append(c.Classes[name], block.block(name))
			}
		}
	}
	return c
}

func (b Block) block(class node.Class) blockio.Device {
	io := blockio.Device{
		Name:          valueOf(b.Name),
		VolumeGroup:   valueOf(b.Type) == "volumegroup",
		ReadBPS:       valueOf(b.IO.ReadBPS),
		WriteBPS:      valueOf(b.IO.WriteBPS),
		ReadIOPS:      valueOf(b.IO.ReadIOPS),
		WriteIOPS:     valueOf(b.IO.WriteIOPS),
		WeightPercent: valueOf(b.IO.WeightPercent),
	}
	if class.Sensitive() {
		io.Latency = b.IO.latency()
	}
	return io
}

// latency returns the shorter of the latency targets for reads and writes. The
// kernel has one target for both.
func (c IO) latency() time.Duration {
	shortest := int64(0)
	for _, m := range []node.Maybe[int64]{c.ReadLatency, c.WriteLatency} {
		if us, set := m.Value(); set && (shortest == 0 || us < shortest) {
			shortest = us
		}
	}
	return time.Duration(min(shortest, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

// checkBlocks makes the checks of block devices that the struct tags cannot express.
func (c *checker) checkBlocks(q QOS) {
	for _, class := range q.classes() {
		for i, b := range class.BlkIO.Blocks {
			path := fmt.Sprintf("resource-qos-config.%s.blkioQOS.blocks[%d]", class.key, i)
			c.need(path+".name", b.Name.Known(), aBlock)
		}
	}
}

// noticesOfBlocks returns a notice for each unsupported setting of blkioQOS.
func (q QOS) noticesOfBlocks() []string {
	var notices []string
	for _, class := range q.classes() {
		if !class.BlkIO.Enable.Or(false) {
			continue
		}
		list := "resource-qos-config." + class.key + ".blkioQOS.blocks"
		if len(class.BlkIO.Blocks) == 0 {
			notices = append(notices, list+": there are none, so block I/O has no limits")
		}
		for i, b := range class.BlkIO.Blocks {
			path := fmt.Sprintf("%s[%d]", list, i)
			notices = append(notices, noticesIn(reflect.ValueOf(b), path)...)
			if valueOf(b.Type) == podVolume {
				notices = append(notices, path+".type "+podVolume+" "+notActedOn+": there are no pods here")
			}
			if name := valueOf(b.Name); valueOf(b.Type) != podVolume && strings.HasPrefix(name, "/dev/disk/") {
				notices = append(notices, path+".name "+quote(name)+" "+notActedOn+": want the name that it links to, such as /dev/vda, or a number such as 254:0")
			}
			if b.IO.latency() > 0 && !class.names[0].Sensitive() {
				notices = append(notices, path+".ioCfg: latency targets are for services, not for "+string(class.names[0]))
			}
		}
	}
	return notices
}
