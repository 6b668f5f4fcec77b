package resctrl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// The events that Tenon reads.
const (
	// Occupancy is the number of bytes in the L3 caches that are data of the
	// group.
	Occupancy = "llc_occupancy"
	// Traffic is the number of bytes that the group moved between the caches
	// and memory.
	Traffic = "mbm_total_bytes"
)

// Monitor reads counters of a group (events), each as the sum over all caches.
// If one cache shows no number ("Unavailable", "Error", "Unassigned"), Monitor
// omits the event, because the sum over fewer caches would look like a drop. To
// read a cache, the kernel interrupts one of its CPUs.
func (f *FS) Monitor(group string, events ...string) (map[string]unit.Bytes, error) {
	if err := check(group); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.path(group, "mon_data"))
	if err != nil {
		return nil, fmt.Errorf("monitor control group %s: %w", group, f.addGone(group, err))
	}
	sums := map[string]unit.Bytes{}
	missing := map[string]bool{}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "mon_L3_") {
			continue
		}
		for _, event := range events {
			text, err := f.read(group, filepath.Join("mon_data", e.Name(), event))
			n, known := parseCounter(text)
			if err != nil || !known {
				missing[event] = true
				continue
			}
			sums[event] += n
		}
	}
	for event := range missing {
		delete(sums, event)
	}
	return sums, nil
}

// parseCounter reads a counter. It returns false if the text is a word such as
// "Unavailable".
func parseCounter(text string) (unit.Bytes, bool) {
	n, err := parseNumber(text, 10)
	return unit.Bytes(n), err == nil
}
