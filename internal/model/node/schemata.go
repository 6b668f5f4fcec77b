package node

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/model/valuetext"
)

// The knobs of resctrl (Documentation/filesystems/resctrl.rst).
const (
	// FileControlGroup is the control group of resctrl that contains the tasks
	// of a cgroup. The knob belongs to the cgroup.
	FileControlGroup File = "resctrl"
	// FileL3 is the set of ways of each L3 cache that the tasks of a control
	// group may fill. The knob belongs to the control group.
	FileL3 File = "L3"
	// FileMB is the memory bandwidth of each L3 cache that the tasks of a
	// control group may use. The knob belongs to the control group.
	FileMB File = "MB"
)

// DefaultControlGroup is the control group of all tasks that are in no other control group.
const DefaultControlGroup = "/"

// Resctrl says what the node's resctrl can divide, and which control groups
// exist. It is zero if Tenon did not read it.
type Resctrl struct {
	// Missing is the reason why resctrl can divide nothing. It is empty if resctrl works.
	Missing string `json:"missing,omitempty"`
	// Groups is the number of control groups (CLOSIDs) that the hardware supports, with the
	// default group. Others is the number that other programs have created.
	Groups int `json:"groups,omitempty"`
	Others int `json:"others,omitempty"`
	// Taken lists control groups that have the name of a class, but were made
	// by another program. Tenon does not change them.
	Taken []string  `json:"taken,omitempty"`
	L3    CacheWays `json:"l3,omitzero"`
	// MBDomains lists the L3 caches that have a limit of memory bandwidth of their own. It
	// is nil if the bandwidth cannot be divided. Kernel.MB has the range and the step.
	MBDomains []CacheID `json:"mb_domains,omitempty"`
	MBPerCore bool      `json:"mb_per_core,omitempty"` // the lowest limit among the threads of a core holds for all
}

// CacheWays describes the ways of the L3 caches of a node. The zero CacheWays
// means that they cannot be divided.
type CacheWays struct {
	Domains []CacheID `json:"domains,omitempty"`
	// Mask has one bit for each way (cbm_mask).
	Mask uint64 `json:"mask,omitempty"`
	// Least is the minimum number of ways of a group (min_cbm_bits).
	Least int `json:"least,omitempty"`
	// Sparse says that the ways of a group need not be contiguous.
	Sparse bool `json:"sparse,omitempty"`
	// Apart says that code and data have separate masks (mount option cdp).
	Apart bool `json:"apart,omitempty"`
}

// Bandwidth describes how the kernel rounds a value of FileMB. If the node
// does not have this knob, the Bandwidth is zero.
type Bandwidth struct {
	Unit BandwidthUnit `json:"unit,omitempty"`
	// A value is Least, Most, or a multiple of Step between them. Most means no limit.
	Least uint64 `json:"least,omitempty"`
	Step  uint64 `json:"step,omitempty"`
	Most  uint64 `json:"most,omitempty"`
}

// BandwidthUnit is the unit of the number in an MB line.
type BandwidthUnit string

// The values of BandwidthUnit.
const (
	// BandwidthPercent is a percentage of the bandwidth. It is imprecise,
	// because the hardware only delays memory accesses (Intel).
	BandwidthPercent BandwidthUnit = "percent"
	// BandwidthEighths is a number of eighths of a GB/s (AMD).
	BandwidthEighths BandwidthUnit = "GB/s/8"
	// BandwidthMegabytes is a number of MB/s (mount option mba_MBps).
	BandwidthMegabytes BandwidthUnit = "MB/s"
)

// CacheUse is the cache occupancy and memory traffic of the tasks of a class.
type CacheUse struct {
	// Occupancy is the amount of data of these tasks in the L3 caches.
	Occupancy Maybe[unit.Bytes] `json:"occupancy,omitzero"`
	// Traffic is the amount of data that the tasks of the group have read from
	// memory and written to memory.
	Traffic Maybe[unit.Bytes] `json:"traffic,omitzero"`
}

// L3 says which ways of each L3 cache a control group may fill, by cache
// number: "0=7;1=7". If code and data have separate masks (mount option cdp),
// L3 contains both: "code 0=7;1=7 data 0=3;1=3".
type L3 struct{ Schema string }

// Ways is the mask of ways of each cache.
type Ways map[CacheID]uint64

// L3Of returns the value in which code and data have the same ways.
func L3Of(w Ways) L3 { return L3{w.String()} }

// L3OfParts returns the value with separate ways for code and data.
func L3OfParts(code, data Ways) L3 { return L3{"code " + code.String() + " data " + data.String()} }

// String prints the masks in hexadecimal, in the order of the cache numbers.
func (w Ways) String() string {
	return valuetext.Schema(w, func(mask uint64) string { return strconv.FormatUint(mask, 16) })
}

// Parts returns the ways for code and the ways for data. They are equal if L3 has only one mask.
func (v L3) Parts() (code, data Ways, err error) {
	c, d := v.Schema, v.Schema
	if rest, apart := strings.CutPrefix(v.Schema, "code "); apart {
		if c, d, apart = strings.Cut(rest, " data "); !apart {
			return nil, nil, fmt.Errorf("L3 %q: want MASKS, or code MASKS data MASKS", v.Schema)
		}
	}
	if code, err = valuetext.ParseSchema[CacheID](c, 16); err != nil {
		return nil, nil, fmt.Errorf("L3 %q: %w", v.Schema, err)
	}
	if data, err = valuetext.ParseSchema[CacheID](d, 16); err != nil {
		return nil, nil, fmt.Errorf("L3 %q: %w", v.Schema, err)
	}
	return code, data, nil
}

// Apart reports whether code and data have separate masks.
func (v L3) Apart() bool { return strings.HasPrefix(v.Schema, "code ") }

func (v L3) String() string { return v.Schema }

// Round returns v, because the kernel stores a mask unchanged or refuses it.
func (v L3) Round(Kernel) Value { return v }

// CompareWidth compares how many ways v and o have in all caches together.
func (v L3) CompareWidth(o Value) int {
	return compareWith(o, func(w L3) int { return cmp.Compare(v.count(), w.count()) })
}

func (v L3) count() int {
	code, data, _ := v.Parts() //nolint:errcheck // a text that cannot be read has no ways
	n := 0
	for _, part := range []Ways{code, data} {
		for _, mask := range part {
			n += bits.OnesCount64(mask)
		}
	}
	return n
}

// MB is the memory bandwidth behind each L3 cache, in the unit of Bandwidth.Unit: "0=50;1=100".
type MB struct{ Schema string }

// MBOf returns the value with the given bandwidth behind each cache.
func MBOf(by map[CacheID]uint64) MB {
	return MB{valuetext.Schema(by, func(n uint64) string { return strconv.FormatUint(n, 10) })}
}

// Bandwidths returns the bandwidth behind each cache.
func (v MB) Bandwidths() (map[CacheID]uint64, error) {
	by, err := valuetext.ParseSchema[CacheID](v.Schema, 10)
	if err != nil {
		return nil, fmt.Errorf("MB %q: %w", v.Schema, err)
	}
	return by, nil
}

func (v MB) String() string { return v.Schema }

// Round limits each number to the range and rounds it up to the next step.
// The kernel rounds numbers within the range in the same way.
func (v MB) Round(k Kernel) Value {
	by, err := v.Bandwidths()
	if err != nil || k.MB == (Bandwidth{}) {
		return v
	}
	for id, n := range by {
		by[id] = k.MB.Round(n)
	}
	return MBOf(by)
}

// Round limits n to the range and rounds it up to the next step.
func (b Bandwidth) Round(n uint64) uint64 {
	n = min(max(n, b.Least), b.Most)
	if over := n % max(b.Step, 1); over > 0 {
		n += b.Step - over
	}
	return min(n, b.Most)
}

// CompareWidth compares the sums of the bandwidth over all caches.
func (v MB) CompareWidth(o Value) int {
	return compareWith(o, func(w MB) int { return cmp.Compare(v.sum(), w.sum()) })
}

func (v MB) sum() (sum uint64) {
	by, _ := v.Bandwidths() //nolint:errcheck // a text that cannot be read limits nothing
	for _, n := range by {
		sum += min(n, 1<<32) // mba_MBps has a large number for "no limit"
	}
	return sum
}

// ControlGroup lists the control groups that contain the tasks of a cgroup: "BE", "/" (the
// default group) or, if some tasks are in each of these two, "/,BE". The list is sorted.
type ControlGroup struct{ Groups string }

// ControlGroupsOf returns the value for tasks that are in the given groups.
func ControlGroupsOf(groups ...string) ControlGroup {
	groups = slices.Sorted(slices.Values(groups))
	return ControlGroup{strings.Join(slices.Compact(groups), ",")}
}

// List lists the groups.
func (v ControlGroup) List() []string { return strings.Split(v.Groups, ",") }

func (v ControlGroup) String() string { return v.Groups }

func (v ControlGroup) Round(Kernel) Value { return v }

// CompareWidth returns 0, because the name of a control group does not say how much it allows.
func (v ControlGroup) CompareWidth(Value) int { return 0 }

func parseControl(text string) (Value, error) {
	for name := range strings.SplitSeq(text, ",") {
		if name == "" || strings.ContainsAny(name, " \n") || (strings.Contains(name, "/") && name != DefaultControlGroup) {
			return nil, fmt.Errorf("resctrl %q: want control groups such as BE or /,BE", text)
		}
	}
	v := ControlGroupsOf(strings.Split(text, ",")...)
	if v.Groups != text {
		return nil, fmt.Errorf("resctrl %q: want each group once, sorted: %s", text, v)
	}
	return v, nil
}

func parseL3(text string) (Value, error) {
	code, data, err := L3{text}.Parts()
	if err != nil {
		return nil, err
	}
	if v := (L3{text}); !v.Apart() {
		return L3Of(code), nil
	}
	return L3OfParts(code, data), nil
}

func parseMB(text string) (Value, error) {
	by, err := MB{text}.Bandwidths()
	return MBOf(by), err
}

// Control returns the name of the control group for class c, as in Koordinator.
// SYSTEM has no control group, so its name is empty.
func (c Class) Control() string {
	switch c {
	case LSE, LSR:
		return string(LSR)
	case LS, BE:
		return string(c)
	}
	return ""
}

// ControlGroups lists the control groups of all classes.
var ControlGroups = []string{string(LSR), string(LS), string(BE)}

// ControlGroupPrefix is the prefix of the name of a control group that belongs to one workload.
const ControlGroupPrefix = "tenon-"

// IsControlGroup reports whether Tenon may have created a control group of this name.
func IsControlGroup(name string) bool {
	return slices.Contains(ControlGroups, name) || strings.HasPrefix(name, ControlGroupPrefix)
}
