package usage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
)

const (
	// faultsKept is the maximum number of faults that are kept, and faultsNamed of
	// those that Trouble names.
	faultsKept  = 64
	faultsNamed = 3
	// faultLasts is the time after which a fault is forgotten if it was not seen
	// again: its cgroup may be gone. Slow counters are read more often.
	faultLasts = 5 * time.Minute
)

// faults holds why counters could not be read, by what was read. The zero faults
// has none. It is safe for concurrent use.
type faults struct {
	some atomic.Bool // so that a reading without a fault costs nothing
	mu   sync.Mutex
	of   map[source]fault
}

// A source is a kernel file, of a cgroup or of the node.
type source struct{ file, cgroup string }

type fault struct {
	text string
	at   time.Time
}

// note records the result of a reading. A cgroup that is gone, and a file that the
// kernel does not have, are no faults.
func (f *faults) note(file, cgroupPath string, err error) {
	if err == nil && !f.some.Load() {
		return
	}
	what := source{file, cgroupPath}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil || errors.Is(err, cgroup.ErrGone) || errors.Is(err, cgroup.ErrUnsupported) ||
		errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) {
		delete(f.of, what)
		return
	}
	if f.of == nil {
		f.of = map[source]fault{}
	}
	if _, known := f.of[what]; known || len(f.of) < faultsKept {
		f.of[what] = fault{strings.Join(strings.Fields(err.Error()), " "), time.Now()}
		f.some.Store(true)
	}
}

// Trouble says which counters cannot be read, and why. It is "" if all can.
func (c *Counters) Trouble() string {
	f := &c.faults
	if !f.some.Load() {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.of, func(_ source, x fault) bool { return time.Since(x.at) > faultLasts })
	f.some.Store(len(f.of) > 0)
	var texts []string
	for _, what := range slices.SortedFunc(maps.Keys(f.of), func(a, b source) int {
		return cmp.Or(cmp.Compare(a.cgroup, b.cgroup), cmp.Compare(a.file, b.file))
	}) {
		if len(texts) == faultsNamed {
			texts = append(texts, fmt.Sprintf("and %d more", len(f.of)-faultsNamed))
			break
		}
		texts = append(texts, f.of[what].text)
	}
	return strings.Join(texts, "; ")
}
