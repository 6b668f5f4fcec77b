package proc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/model/unit"
)

// MemInfo is the memory of the node.
type MemInfo struct {
	Total, Free unit.Bytes
	// Available is the kernel's estimate of the memory that new work can get
	// before the machine swaps.
	Available           unit.Bytes
	Buffers, Cached     unit.Bytes
	InactiveFile        unit.Bytes // page cache that was not used lately
	SwapTotal, SwapFree unit.Bytes
	HugePages           unit.Bytes // set aside for huge pages, which no other memory can use
	// Unread has the fields, by their names in the file, whose lines are missing
	// or damaged. They are 0, and mean nothing.
	Unread partial.Fields
}

// MemInfo reads /proc/meminfo (Documentation/filesystems/proc.rst, meminfo). It
// fails only if there is no MemTotal, without which no other field helps. Some
// containers show odd values, such as a free swap of -128 kB as a number of 64
// bits (lxcfs). If more memory is available than there is, all is available.
func (fs FS) MemInfo() (MemInfo, error) { return procFile(fs, "meminfo", parseMemInfo) }

func parseMemInfo(text string) (MemInfo, error) {
	m := parseMemInfoOf("", text)
	m.HugePages = hugePagesOf(text)
	if err := m.Unread["MemTotal"]; err != nil {
		return MemInfo{}, err
	}
	if m.Total == 0 {
		return MemInfo{}, errors.New("no MemTotal")
	}
	m.Available = min(m.Available, m.Total)
	return m, nil
}

// parseMemInfoOf reads lines such as "MemTotal: 24684084 kB", each after the
// given prefix. kB means KiB.
func parseMemInfoOf(prefix, text string) MemInfo {
	var m MemInfo
	to := map[string]*unit.Bytes{
		"MemTotal": &m.Total, "MemFree": &m.Free, "MemAvailable": &m.Available,
		"Buffers": &m.Buffers, "Cached": &m.Cached, "Inactive(file)": &m.InactiveFile,
		"SwapTotal": &m.SwapTotal, "SwapFree": &m.SwapFree,
	}
	for line := range strings.Lines(text) {
		key, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), prefix), ":")
		b, wanted := to[key]
		if !wanted {
			continue
		}
		delete(to, key)
		digits, isKiB := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || !isKiB || n < 0 || n > math.MaxInt64/1024 {
			m.Unread.Lose(key, fmt.Errorf("line %q: want a number of kB", strings.TrimSpace(line)))
			continue
		}
		*b = unit.Bytes(n) * 1024
	}
	for key := range to {
		m.Unread.Lose(key, errors.New("no "+key))
	}
	return m
}
