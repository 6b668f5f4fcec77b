// Package inventory keeps a list of the containers of this machine, as the
// container runtimes report them. The path of its cgroup identifies a container. A
// dry run makes the list once. An agent updates it in the background.
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
	// answerWithin is the maximum time of a listing. A runtime that systemd
	// starts on demand needs some seconds. firstWithin is shorter, because the
	// first tick waits for its listing.
	answerWithin = 10 * time.Second
	firstWithin  = 2 * time.Second
	// The pause between two listings is at least minRest, and at least restFor
	// times the duration of the last listing. After a request, the Follower
	// lists at once and again after the pause. In between, a new cgroup may
	// exist whose container the runtime does not yet report as running.
	minRest = time.Second
	restFor = 20
	// askAtLatest is the maximum time between two attempts to reach a missing
	// runtime.
	askAtLatest = 30 * time.Second
)

// A Follower keeps the list of the containers of all runtimes. Run updates the
// list in the background, because a runtime that does not answer must not stop
// the loop of the agent.
type Follower struct {
	log  *slog.Logger
	tell func(ctx context.Context, address string) ([]container.Container, error)
	news func()
	ask  chan struct{}

	paths []string // all cgroups at the last call of See; only the loop uses it

	mu        sync.Mutex // guards the fields below
	addresses []string   // nil: no rule names containers
	named     bool       // the addresses come from the configuration
	known     map[string][]container.Container
	absent    map[string]bool   // by address: the socket does not exist
	trouble   map[string]string // by address: the last error
	asked     bool
}

// Follow returns a Follower with an empty list. Run calls the function news
// whenever the list has changed.
func Follow(log *slog.Logger, fs proc.FS, news func()) *Follower {
	tell := func(ctx context.Context, address string) ([]container.Container, error) {
		return tell(ctx, address, fs)
	}
	return &Follower{log: log, tell: tell, news: news, ask: make(chan struct{}, 1)}
}

// Use sets the addresses of the runtimes. If no rule names containers, the
// Follower asks no runtime.
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

// look makes Run list the containers soon.
func (c *Follower) look() {
	select {
	case c.ask <- struct{}{}:
	default:
	}
}

// See triggers a listing if a cgroup that may be a container was created or
// removed since the last call. paths is sorted. Other cgroups trigger none: a
// listing may start a unit such as podman.service, and if its new cgroup
// triggered the next listing, there would be no end.
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

// First lists the containers before the first tick. Without this list, the tick
// would release the containers that the last tenond managed. remembered is the
// list of the last tenond. If a runtime does not answer now, First takes its
// containers from there.
func (c *Follower) First(ctx context.Context, remembered map[string][]container.Container) {
	select {
	case <-c.ask: // First also answers a request of Use
	default:
	}
	c.mu.Lock()
	c.known = remembered
	c.mu.Unlock()
	c.list(ctx, firstWithin)
}

// Run updates the list until ctx ends. The first listing is minRest after the
// call.
func (c *Follower) Run(ctx context.Context) {
	next := time.NewTimer(minRest)
	var missing time.Duration // the last wait for a missing runtime
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
		rest := max(minRest, restFor*time.Since(begun))
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
			next.Reset(missing - rest) // at once if that time is over
		}
		if changed {
			next.Reset(0)
		}
	}
}

// misses reports whether a runtime does not answer, although it exists or has
// listed containers before.
func (c *Follower) misses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.trouble) > 0
}

// An answer is the list of a runtime, or its error.
type answer struct {
	all []container.Container
	err error
}

// list asks every runtime, waits for each answer at most the time within, and
// reports whether the list has changed. If a runtime does not answer or is
// gone, its containers stay in the list, because their best-effort work must
// stay bounded.
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
		return false // this process ends, so an error does not come from a runtime
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
			c.log.Warn("a container runtime does not list its containers; using its last list", "runtime", address, "error", err)
		}
	}
	for address := range c.trouble {
		if _, still := trouble[address]; !still && slices.Contains(addresses, address) {
			c.log.Info("a container runtime lists its containers again", "runtime", address)
		}
	}
	changed = !c.asked || !reflect.DeepEqual(known, c.known) || !maps.Equal(absent, c.absent)
	c.known, c.absent, c.trouble, c.asked = known, absent, trouble, true
	return changed
}

// tell lists the containers of one runtime with their cgroups. The list is
// sorted, so that two answers can be compared.
func tell(ctx context.Context, address string, fs proc.FS) ([]container.Container, error) {
	runtime, err := container.Open(address)
	if err != nil {
		return nil, err
	}
	defer runtime.Close()
	user, err := container.UserOf(address)
	if err != nil {
		return nil, err
	}
	all, err := runtime.List(ctx)
	for i := range all {
		all[i].User = user
	}
	container.Locate(all, func(pid int) (string, bool) { return groupOf(fs, pid) })
	slices.SortFunc(all, func(a, b container.Container) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// groupOf returns the cgroup of a process. If the process has ended, it returns
// false, even if another process has its PID now.
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

// Remembers returns the present list, by address. The next tenond passes it to First.
func (c *Follower) Remembers() map[string][]container.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// Groups returns the containers by the path of their cgroup. It also returns
// remarks for the user.
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

// remarks returns one remark for each missing socket that the configuration
// names. If the configuration names none, there is one remark when no default
// socket exists. The caller holds c.mu.
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

// ListOnce asks the runtimes once, if any rule names containers. It returns the
// cgroups with the given paths, and the containers in them. match.Groups uses
// the function direct. A runtime that exists but does not answer is an error.
func ListOnce(ctx context.Context, rules []match.Rule, addresses, paths []string, direct func(path string) (bool, error)) ([]match.Group, error) {
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
