package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Info describes the resources that this machine can divide and measure.
type Info struct {
	// Groups is the maximum number of control groups, including the default
	// group: the smallest num_closids of all resources. If the machine can
	// divide no resource, it is 0.
	Groups int
	L3     Cache
	MB     Bandwidth
	// Events are the counters of mon_data: llc_occupancy, mbm_total_bytes, …
	Events []string
}

// Cache describes how the L3 caches can be divided. If it is zero, they cannot
// be divided.
type Cache struct {
	Mask   uint64 // one bit for each way (cbm_mask); 0 if the caches cannot be divided
	Least  int    // the minimum number of ways of a group (min_cbm_bits)
	Sparse bool   // the ways of a group need not be adjacent
	// Apart says that code and data have separate masks (mount option cdp).
	Apart bool
	// Shareable are the ways that other hardware also fills, such as a network
	// card.
	Shareable uint64
}

// Bandwidth describes how the memory bandwidth can be divided. If it is zero,
// the bandwidth cannot be divided.
type Bandwidth struct {
	Divisible bool
	Least     uint64 // min_bandwidth
	Step      uint64 // bandwidth_gran
	// Absolute says that the unit is 1/8 GB/s, as on AMD, instead of percent.
	Absolute bool
	// Megabytes says that the unit is MB/s (mount option mba_MBps).
	Megabytes bool
	// PerCore says that the lowest limit among the threads of a core holds for all
	// of them.
	PerCore bool
}

// Info reads the files of the folder info.
func (f *FS) Info() (Info, error) {
	var i Info
	entries, err := os.ReadDir(f.path(Default, "info"))
	if err != nil {
		return i, fmt.Errorf("read resctrl's info: %w", err)
	}
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() {
			continue // last_cmd_status
		}
		n, err := f.optional(name, "num_closids", 10)
		if errs = append(errs, err); n > 0 && (i.Groups == 0 || int(n) < i.Groups) {
			i.Groups = int(n)
		}
		switch name {
		case L3, L3Data:
			i.L3, err = f.cache(name)
			errs = append(errs, err)
		case MB:
			i.MB, err = f.bandwidth()
			errs = append(errs, err)
		case "L3_MON":
			text, err := f.read(Default, "info", name, "mon_features")
			i.Events = parseEvents(text)
			errs = append(errs, err)
		}
	}
	return i, errors.Join(errs...)
}

func (f *FS) cache(resource string) (Cache, error) {
	c := Cache{Apart: resource != L3}
	mask, err := f.number(resource, "cbm_mask", 16)
	least, err2 := f.number(resource, "min_cbm_bits", 10)
	c.Mask, c.Least = mask, int(least)
	// Later kernels added these files. If a file is missing, the kernel does
	// not have the feature.
	sparse, err3 := f.optional(resource, "sparse_masks", 10)
	c.Sparse = sparse == 1
	shareable, err4 := f.optional(resource, "shareable_bits", 16)
	c.Shareable = shareable
	return c, errors.Join(err, err2, err3, err4)
}

// bandwidth describes the memory bandwidth. The unit is percent or an amount,
// which only delay_linear tells: percent needs hardware with linear delays
// (rdt_core.c: __get_mem_config_intel rejects other hardware). On AMD, which
// uses amounts, the file shows 0.
func (f *FS) bandwidth() (Bandwidth, error) {
	b := Bandwidth{Divisible: true, Megabytes: slices.Contains(f.Options, "mba_MBps")}
	var errs [3]error
	var linear uint64
	b.Least, errs[0] = f.number(MB, "min_bandwidth", 10)
	b.Step, errs[1] = f.number(MB, "bandwidth_gran", 10)
	linear, errs[2] = f.number(MB, "delay_linear", 10)
	b.Absolute = linear == 0 && errs[2] == nil && !b.Megabytes
	if errors.Is(errs[2], fs.ErrNotExist) {
		errs[2] = nil
	}
	var err error
	b.PerCore, err = f.limitsCores(b)
	return b, errors.Join(append(errs[:], err)...)
}

// limitsCores reports whether a limit of bandwidth holds for a whole core. On
// Intel's processors, the file thread_throttle_mode says this. Older kernels do
// not have the file, because these processors had only one mode then, "max".
func (f *FS) limitsCores(b Bandwidth) (bool, error) {
	mode, err := f.read(Default, "info", MB, "thread_throttle_mode")
	if errors.Is(err, fs.ErrNotExist) {
		return runtime.GOARCH == "amd64" && !b.Absolute, nil
	}
	return strings.TrimSpace(mode) == "max", err
}

// optional reads a number from a file that the folder of a resource may lack.
// Then it returns 0.
func (f *FS) optional(resource, file string, base int) (uint64, error) {
	n, err := f.number(resource, file, base)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// number reads a file of the folder info that holds one number.
func (f *FS) number(resource, file string, base int) (uint64, error) {
	text, err := f.read(Default, "info", resource, file)
	if err != nil {
		return 0, err
	}
	n, err := parseNumber(text, base)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Join("info", resource, file), err)
	}
	return n, nil
}

func parseNumber(text string, base int) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), base, 63)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number to base %d", strings.TrimSpace(text), base)
	}
	return n, nil
}

// parseEvents reads one event from each line. It skips names of settings, such
// as mbm_total_bytes_config.
func parseEvents(text string) []string {
	var events []string
	for e := range strings.FieldsSeq(text) {
		if !strings.HasSuffix(e, "_config") {
			events = append(events, e)
		}
	}
	return events
}
