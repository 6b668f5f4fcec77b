package proc

import (
	"math"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// hugePagesOf returns the memory that is set aside for huge pages in a text of
// /proc/meminfo, whether the pages are in use or free. Hugetlb is the memory of
// all sizes of pages. Kernels before 4.16 lack it; there the pages of the default
// size count. The result is 0 if the text has neither. Transparent huge pages do
// not count: they are ordinary memory
// (Documentation/admin-guide/mm/hugetlbpage.rst).
func hugePagesOf(text string) unit.Bytes {
	values := map[string]int64{"Hugetlb": -1, "HugePages_Total": 0, "Hugepagesize": 0}
	for line := range strings.Lines(text) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		if _, wanted := values[key]; !wanted {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil && n >= 0 {
			values[key] = n // a damaged line counts as a missing one
		}
	}
	kib, size := values["Hugetlb"], values["Hugepagesize"]
	if kib < 0 {
		kib = 0
		if n := values["HugePages_Total"]; size > 0 && n <= math.MaxInt64/size {
			kib = n * size
		}
	}
	return unit.Bytes(min(kib, math.MaxInt64/1024)) * 1024
}
