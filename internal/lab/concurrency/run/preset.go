package run

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// The names of presets.
const (
	Quick    = "quick"
	BelowOne = "below-one"
	Full     = "full"
)

// A grid is a set of cells: the combinations of its lists.
type grid struct {
	strategies []Strategy
	jobs       []int
	limits     []unit.MilliCPU
	memory     []unit.Bytes
	threads    []int
}

const gib = unit.Bytes(1) << 30

// presets has the grids of each preset, by name. The preset published has the cells of
// the published heat map and curves, and published-quick a few of them. The other presets
// named published-… repeat
// the four environments of the published transcoding experiment. That experiment had
// up to 192 jobs on six nodes, CPU limits of 0.1 to 7, and 0.5 to 16 GiB of memory.
var presets = map[string][]grid{
	Quick: {
		{strategies: []Strategy{Quota, PinnedSlices, Tenon}, jobs: []int{1, 2, 4}, limits: []unit.MilliCPU{1000}},
		{strategies: []Strategy{Quota}, jobs: []int{1, 2, 4}, limits: []unit.MilliCPU{100, 250, 500}},
		{strategies: []Strategy{Unbounded}, jobs: []int{1, 2, 4}, limits: []unit.MilliCPU{0}, threads: []int{0, 1}},
	},
	BelowOne: {
		{strategies: []Strategy{Quota}, jobs: []int{1, 2, 3, 4, 8, 16}, limits: []unit.MilliCPU{100, 200, 400, 800, 1000, 1500}, threads: []int{0, 1}},
		{strategies: []Strategy{Unbounded}, jobs: []int{1}, limits: []unit.MilliCPU{0}},
	},
	Full: {
		{
			strategies: []Strategy{Quota, PinnedSlices, PinnedBlind, Static, StaticBurst, Burst, Matched, Tenon}, jobs: []int{1, 2, 3, 4, 6, 8},
			limits: []unit.MilliCPU{500, 1000}, threads: []int{0},
		},
		{strategies: []Strategy{Unbounded}, jobs: []int{1, 2, 3, 4, 6, 8}, limits: []unit.MilliCPU{0}, threads: []int{0, 1}},
	},
	"published": {
		{
			strategies: []Strategy{Quota}, jobs: []int{1, 2, 3, 4, 8, 16, 32},
			limits: []unit.MilliCPU{100, 200, 400, 800, 1000, 1500, 2000, 3000},
		},
		{strategies: []Strategy{Quota, PinnedSlices, Tenon}, jobs: []int{1, 2, 3, 4, 5, 6, 7}, limits: []unit.MilliCPU{1000, 2000, 4000, 5000}},
		{strategies: []Strategy{Unbounded}, jobs: []int{1, 2, 3, 4, 5, 6, 7}, limits: []unit.MilliCPU{0}},
	},
	"published-quick": {
		{strategies: []Strategy{Quota}, jobs: []int{1, 2}, limits: []unit.MilliCPU{400, 800, 1000}},
		{strategies: []Strategy{PinnedSlices}, jobs: []int{1, 2}, limits: []unit.MilliCPU{1000}},
		{strategies: []Strategy{Unbounded}, jobs: []int{1, 2}, limits: []unit.MilliCPU{0}},
	},
	"published-bm": {
		{
			strategies: []Strategy{Quota}, jobs: []int{1, 2, 3, 4, 8, 16, 32}, limits: []unit.MilliCPU{100, 200, 400, 800, 1000, 1500, 2000, 3000},
			memory: []unit.Bytes{gib / 2, 1 * gib, 2 * gib, 4 * gib, 8 * gib, 16 * gib},
		},
	},
	"published-192": {
		{
			strategies: []Strategy{Quota}, jobs: []int{1, 6, 12, 18, 24, 48, 96, 192},
			limits: []unit.MilliCPU{100, 200, 400, 800, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000}, memory: []unit.Bytes{2 * gib},
		},
	},
	"published-aws": {
		{
			strategies: []Strategy{Quota}, jobs: []int{1, 4, 8, 12, 24, 48}, limits: []unit.MilliCPU{1000, 2000, 3000},
			memory: []unit.Bytes{1 * gib, 2 * gib, 3 * gib},
		},
	},
	"published-lxd": {
		{strategies: []Strategy{Quota, PinnedSlices, PinnedBlind, Unbounded}, jobs: []int{1, 2, 3, 4}, limits: []unit.MilliCPU{0, 2000, 3000, 4000, 5000, 6000, 7000}},
	},
}

// Presets returns the names of the presets.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// PresetHelp returns the lists of each preset, for the help of the command.
func PresetHelp() string {
	var b strings.Builder
	for _, name := range Presets() {
		b.WriteString("  " + name + "\n")
		for _, g := range presets[name] {
			for i, line := range textlayout.Wrap(g.String(), 70) {
				indent := "      "
				if i == 0 {
					indent = "    "
				}
				b.WriteString(indent + line + "\n")
			}
		}
	}
	return b.String()
}

// String returns the lists of a grid with the names of their flags.
func (g grid) String() string {
	lists := []string{"--strategies=" + strings.ReplaceAll(join(g.strategies), " ", ""), "--jobs=" + joinAs(g.jobs, strconv.Itoa)}
	lists = append(lists, "--limits="+joinAs(g.limits, func(l unit.MilliCPU) string {
		if l == 0 {
			return "none"
		}
		return strconv.FormatFloat(l.Cores(), 'f', -1, 64)
	}))
	if len(g.memory) > 0 {
		lists = append(lists, "--memory="+joinAs(g.memory, func(m unit.Bytes) string {
			if m%gib == 0 {
				return fmt.Sprintf("%dGi", m/gib)
			}
			return fmt.Sprintf("%dMi", m>>20)
		}))
	}
	if len(g.threads) > 0 {
		lists = append(lists, "--threads="+joinAs(g.threads, strconv.Itoa))
	}
	return strings.Join(lists, " ")
}

func joinAs[T any](all []T, text func(T) string) string {
	list := make([]string, len(all))
	for i, v := range all {
		list[i] = text(v)
	}
	return strings.Join(list, ",")
}

// preset fills empty lists from the first grid of the preset, if the caller has
// set at least one list. If the caller has set no list, preset changes nothing.
func (c Config) preset() Config {
	named := len(c.Strategies)+len(c.Jobs)+len(c.Limits)+len(c.Memory)+len(c.Threads) > 0
	all := presets[c.Preset]
	if !named || len(all) == 0 {
		return c
	}
	g := all[0]
	if len(c.Strategies) == 0 {
		c.Strategies = g.strategies
		if slices.Contains(c.Limits, 0) && !slices.Contains(c.Strategies, Unbounded) {
			c.Strategies = append(slices.Clone(c.Strategies), Unbounded)
		}
	}
	if len(c.Jobs) == 0 {
		c.Jobs = g.jobs
	}
	if len(c.Limits) == 0 {
		c.Limits = g.limits
		if slices.Contains(c.Strategies, Unbounded) && !slices.Contains(c.Limits, 0) {
			c.Limits = append([]unit.MilliCPU{0}, c.Limits...)
		}
	}
	if len(c.Memory) == 0 {
		c.Memory = g.memory
	}
	if len(c.Threads) == 0 {
		c.Threads = g.threads
	}
	return c
}

// grids returns the sets of cells of the experiment.
func (c Config) grids() []grid {
	if len(c.Strategies) > 0 {
		return []grid{{c.Strategies, c.Jobs, c.Limits, c.Memory, c.Threads}}
	}
	return presets[c.Preset]
}
