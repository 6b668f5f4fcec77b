package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/container"
	"tenon.sh/tenon/internal/match"
	"tenon.sh/tenon/internal/proc"
	"tenon.sh/tenon/internal/tick"
)

const (
	// answerWithin is how long a runtime may take to list its containers: one
	// that systemd starts for the question takes seconds. firstWithin is what
	// it gets before the first turn, which waits for it.
	answerWithin = 10 * time.Second
	firstWithin  = 2 * time.Second
	// leastRest is how long the runtimes are left alone after a listing, and
	// restFor is how often the time that it took. After a change they are
	// asked once more when that is over: a cgroup may be there before its
	// runtime counts the container as running.
	leastRest = time.Second
	restFor   = 20
	// askAtLatest bounds the wait before a runtime that is missing is asked
	// again.
	askAtLatest = 30 * time.Second
)

// containers knows the containers of the machine's runtimes. It asks while
// nobody waits: a runtime that hangs must not stop the loop.
type containers struct {
	log  *slog.Logger
	tell func(ctx context.Context, address string) ([]container.Container, error)
	news func(tick.Event)
	ask  chan struct{}

	paths []string // of all cgroups, as follow had them last; the loop's own

	mu        sync.Mutex // guards the rest
	addresses []string   // nil: no rule wants to know
	named     bool       // the addresses are the configuration's
	known     map[string][]container.Container
	absent    map[string]bool   // there is no such socket
	trouble   map[string]string // by address
	asked     bool
}

func newContainers(log *slog.Logger, fs proc.FS, news func(tick.Event)) *containers {
	tell := func(ctx context.Context, address string) ([]container.Container, error) {
		return tell(ctx, address, fs)
	}
	return &containers{log: log, tell: tell, news: news, ask: make(chan struct{}, 1)}
}

// use says where to ask, and whether to ask at all: only for rules that name
// containers.
func (c *containers) use(rules []match.Rule, addresses []string) {
	named := len(addresses) > 0
	if !named {
		addresses = container.Sockets
	}
	if !slices.ContainsFunc(rules, func(r match.Rule) bool { return len(r.Containers) > 0 }) {
		addresses = nil
	}
	c.mu.Lock()
	c.addresses, c.named = addresses, named
	c.mu.Unlock()
	c.look()
}

// look has the runtimes asked, soon.
func (c *containers) look() {
	select {
	case c.ask <- struct{}{}:
	default:
	}
}

// follow has the runtimes asked if a cgroup that can be a container is in only
// one of these paths and those before, which are sorted. Other cgroups must
// not do it: to ask may start a unit, as podman.service, and its cgroup would
// have them asked again for ever.
func (c *containers) follow(paths []string) {
	before := c.paths
	c.paths = paths
	c.mu.Lock()
	addresses := c.addresses
	c.mu.Unlock()
	if before != nil && differ(before, paths, func(path string) bool { return container.CanBe(path, addresses) }) {
		c.look()
	}
}

// differ reports whether something that counts is in only one of two sorted
// lists.
func differ(a, b []string, counts func(string) bool) bool {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			if counts(a[0]) {
				return true
			}
			a = a[1:]
		case len(a) == 0 || b[0] < a[0]:
			if counts(b[0]) {
				return true
			}
			b = b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return false
}

// first asks before the first turn, which would otherwise let go of the
// containers that the last tenond kept. Remembered is what that one knew of
// them: it holds for the runtimes that do not answer now.
func (c *containers) first(ctx context.Context, remembered map[string][]container.Container) {
	select {
	case <-c.ask: // this is the answer to what use has asked
	default:
	}
	c.mu.Lock()
	c.known = remembered
	c.mu.Unlock()
	c.list(ctx, firstWithin)
}

// run asks until ctx ends, a first time when first has rested.
func (c *containers) run(ctx context.Context) {
	next := time.NewTimer(leastRest)
	var missing time.Duration // how long it last waited for a missing runtime
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-c.ask:
			changed = true
		case <-next.C:
		}
		begun := time.Now()
		if c.list(ctx, answerWithin) {
			c.news(tick.Event{At: time.Now(), Kind: tick.EventCgroups, Text: "containers have come or gone"})
		}
		rest := max(leastRest, restFor*time.Since(begun))
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
		next.Stop()
		if !c.misses() {
			missing = 0
		} else {
			missing = longer(missing, askAtLatest)
			next.Reset(missing - rest) // at once if that is over
		}
		if changed {
			next.Reset(0)
		}
	}
}

// longer is how long to wait after an attempt that failed like the one before,
// after which it was the given time: 1 s at first, and at most the bound.
func longer(waited, most time.Duration) time.Duration {
	return min(max(2*waited, time.Second), most)
}

// misses reports whether a runtime of which something is known, or that is
// there, does not tell its containers.
func (c *containers) misses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.trouble) > 0
}

// An answer is what a runtime says, or why it does not.
type answer struct {
	all []container.Container
	err error
}

// list asks every runtime, each for no longer than within, and reports whether
// anything is new. Of one that does not answer, or is gone, what was known
// stays: its best-effort work must not be let loose.
func (c *containers) list(ctx context.Context, within time.Duration) (changed bool) {
	c.mu.Lock()
	addresses := c.addresses
	c.mu.Unlock()
	soon, cancel := context.WithTimeout(ctx, within)
	answers := make([]answer, len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() { answers[i].all, answers[i].err = c.tell(soon, address) })
	}
	asking.Wait()
	cancel()
	if ctx.Err() != nil {
		return false // nobody is in trouble but this process, which ends
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, absent, trouble := map[string][]container.Container{}, map[string]bool{}, map[string]string{}
	for i, address := range addresses {
		before, err := c.known[address], answers[i].err
		if err == nil {
			known[address] = answers[i].all
			continue
		}
		if absent[address] = errors.Is(err, container.ErrAbsent); absent[address] && len(before) == 0 {
			continue
		}
		known[address], trouble[address] = before, err.Error()
		if trouble[address] != c.trouble[address] {
			c.log.Warn("a container runtime does not tell its containers; what it said last holds", "runtime", address, "error", err)
		}
	}
	for address := range c.trouble {
		if _, still := trouble[address]; !still && slices.Contains(addresses, address) {
			c.log.Info("a container runtime tells its containers again", "runtime", address)
		}
	}
	changed = !c.asked || !reflect.DeepEqual(known, c.known) || !maps.Equal(absent, c.absent)
	c.known, c.absent, c.trouble, c.asked = known, absent, trouble, true
	return changed
}

// tell lists the containers of one runtime with their cgroups, ordered so that
// two answers can be compared.
func tell(ctx context.Context, address string, fs proc.FS) ([]container.Container, error) {
	runtime, err := container.Open(address)
	if err != nil {
		return nil, err
	}
	defer runtime.Close()
	all, err := runtime.List(ctx)
	container.Locate(all, func(pid int) (string, bool) { return groupOf(fs, pid) })
	slices.SortFunc(all, func(a, b container.Container) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// groupOf is the cgroup of a process, unless another took its number
// meanwhile.
func groupOf(fs proc.FS, pid int) (path string, known bool) {
	before, err := fs.PIDStat(pid)
	if err != nil {
		return "", false
	}
	entries, err := fs.Cgroup(pid)
	if err != nil {
		return "", false
	}
	after, err := fs.PIDStat(pid)
	return strings.Trim(cgroupOf(entries), "/"), err == nil && after.StartTime == before.StartTime
}

// remembers is what the next tenond should know, by address.
func (c *containers) remembers() map[string][]container.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// groups are the containers by the path of their cgroup, and what is to be
// said about them.
func (c *containers) groups(paths []string) (map[string]*match.Container, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []container.Container
	for _, address := range slices.Sorted(maps.Keys(c.known)) {
		all = append(all, c.known[address]...)
	}
	groups := make(map[string]*match.Container, len(all))
	for path, k := range container.Groups(all, paths) {
		groups[path] = &match.Container{Name: k.Name, Labels: k.Labels}
	}
	return groups, c.remarks()
}

// remarks are about sockets that are not there; c.mu is held. Those that the
// configuration names should be; of the usual ones a machine has some.
func (c *containers) remarks() (remarks []string) {
	switch {
	case len(c.addresses) == 0 || !c.asked:
	case c.named:
		for _, address := range c.addresses {
			if c.absent[address] {
				remarks = append(remarks, fmt.Sprintf("containerSockets names %s, and there is no such socket", address))
			}
		}
	case len(c.known) == 0:
		remarks = append(remarks, fmt.Sprintf("rules name containers, and no runtime answers at %s", strings.Join(c.addresses, ", ")))
	}
	return remarks
}

// Containers asks the container runtimes once, if any rule names containers,
// and returns what they say by the path of the cgroup. The errors are about
// runtimes that are there and do not answer.
func Containers(ctx context.Context, rules []match.Rule, addresses, paths []string) (map[string]*match.Container, error) {
	c := newContainers(slog.New(slog.DiscardHandler), proc.Default(), nil)
	c.use(rules, addresses)
	c.list(ctx, answerWithin)
	var errs []error
	for _, text := range c.trouble {
		errs = append(errs, errors.New(text))
	}
	groups, _ := c.groups(paths)
	return groups, errors.Join(errs...)
}
