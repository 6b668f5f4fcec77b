// Package inventory keeps the list of the containers that the container runtimes
// of this machine tell, by the path of their cgroups: once for a dry run, or
// followed in the background while an agent works.
package inventory

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

	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/runtimes/container"
)

const (
	// answerWithin is how long a runtime may take to list its containers: one
	// that systemd starts for the question takes seconds. firstWithin is what
	// it gets before the first tick, which waits for it.
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

// A Follower knows the containers of the machine's runtimes. Run asks them in
// the background: a runtime that hangs must not stop the agent's loop.
type Follower struct {
	log  *slog.Logger
	tell func(ctx context.Context, address string) ([]container.Container, error)
	news func()
	ask  chan struct{}

	paths []string // of all cgroups, as See had them last; the loop's own

	mu        sync.Mutex // guards the rest
	addresses []string   // nil: no rule wants to know
	named     bool       // the addresses are the configuration's
	known     map[string][]container.Container
	absent    map[string]bool   // there is no such socket
	trouble   map[string]string // by address
	asked     bool
}

// Follow makes a Follower that knows nothing yet. News is called, by Run, when
// containers have come or gone.
func Follow(log *slog.Logger, fs proc.FS, news func()) *Follower {
	tell := func(ctx context.Context, address string) ([]container.Container, error) {
		return tell(ctx, address, fs)
	}
	return &Follower{log: log, tell: tell, news: news, ask: make(chan struct{}, 1)}
}

// Use says where to ask, and whether to ask at all: only for rules that name
// containers.
func (c *Follower) Use(rules []match.Rule, addresses []string) {
	named := len(addresses) > 0
	if !named {
		addresses = container.Sockets
	}
	if !match.NameContainers(rules) {
		addresses = nil
	}
	c.mu.Lock()
	c.addresses, c.named = addresses, named
	c.mu.Unlock()
	c.look()
}

// look has the runtimes asked, soon.
func (c *Follower) look() {
	select {
	case c.ask <- struct{}{}:
	default:
	}
}

// See has the runtimes asked if a cgroup that can be a container is in only
// one of these paths and those before, which are sorted. Other cgroups must
// not do it: to ask may start a unit, as podman.service, and its cgroup would
// have them asked again for ever.
func (c *Follower) See(paths []string) {
	before := c.paths
	c.paths = paths
	c.mu.Lock()
	addresses := c.addresses
	c.mu.Unlock()
	if before != nil && match.Differ(before, paths, func(path string) bool { return container.CanBe(path, addresses) }) {
		c.look()
	}
}

// First asks before the first tick, which would otherwise let go of the
// containers that the last tenond kept. Remembered is what that one knew of
// them: it holds for the runtimes that do not answer now.
func (c *Follower) First(ctx context.Context, remembered map[string][]container.Container) {
	select {
	case <-c.ask: // this is the answer to what Use has asked
	default:
	}
	c.mu.Lock()
	c.known = remembered
	c.mu.Unlock()
	c.list(ctx, firstWithin)
}

// Run asks until ctx ends, a first time when First has rested.
func (c *Follower) Run(ctx context.Context) {
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
			c.news()
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
			missing = min(max(2*missing, time.Second), askAtLatest)
			next.Reset(missing - rest) // at once if that is over
		}
		if changed {
			next.Reset(0)
		}
	}
}

// misses reports whether a runtime of which something is known, or that is
// there, does not tell its containers.
func (c *Follower) misses() bool {
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
func (c *Follower) list(ctx context.Context, within time.Duration) (changed bool) {
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
	return strings.Trim(proc.CPUPath(entries), "/"), err == nil && after.StartTime == before.StartTime
}

// Remembers is what the next tenond should know, by address.
func (c *Follower) Remembers() map[string][]container.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// Groups are the containers by the path of their cgroup, and what is to be
// said about them.
func (c *Follower) Groups(paths []string) (map[string]*match.Container, []string) {
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
func (c *Follower) remarks() (remarks []string) {
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

// Once asks the container runtimes once, if any rule names containers, and
// returns the cgroups with the given paths with what the runtimes say of them;
// direct is for match.Groups. The errors are about runtimes that are there and do
// not answer.
func Once(ctx context.Context, rules []match.Rule, addresses, paths []string, direct func(path string) (bool, error)) ([]match.Group, error) {
	c := Follow(slog.New(slog.DiscardHandler), proc.Default(), nil)
	c.Use(rules, addresses)
	c.list(ctx, answerWithin)
	var errs []error
	for _, text := range c.trouble {
		errs = append(errs, errors.New(text))
	}
	containers, _ := c.Groups(paths)
	return match.Groups(paths, containers, direct), errors.Join(errs...)
}
