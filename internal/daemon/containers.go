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
	// answerWithin is how long a runtime may take to list its containers.
	answerWithin = 2 * time.Second
	// askAgain is when it is asked once more: a cgroup may be there before its
	// runtime counts the container as running.
	askAgain = time.Second
)

// containers knows the containers of the machine's runtimes. It asks while
// nobody waits: a runtime that hangs must not stop the loop.
type containers struct {
	log  *slog.Logger
	news func(tick.Event)
	ask  chan struct{}

	mu        sync.Mutex // guards the rest
	addresses []string   // nil: no rule wants to know
	known     map[string][]container.Container
	trouble   map[string]string // by address
	asked     bool
}

func newContainers(log *slog.Logger, news func(tick.Event)) *containers {
	return &containers{log: log, news: news, ask: make(chan struct{}, 1), known: map[string][]container.Container{}, trouble: map[string]string{}}
}

// use says where to ask, and whether to ask at all: only for rules that name
// containers.
func (c *containers) use(rules []match.Rule, addresses []string) {
	if len(addresses) == 0 {
		addresses = container.Sockets
	}
	if !slices.ContainsFunc(rules, func(r match.Rule) bool { return len(r.Containers) > 0 }) {
		addresses = nil
	}
	c.mu.Lock()
	c.addresses = addresses
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

// run asks until ctx ends.
func (c *containers) run(ctx context.Context) {
	again := time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.ask:
			again.Reset(askAgain)
		case <-again.C:
		}
		c.mu.Lock()
		addresses := c.addresses
		c.mu.Unlock()
		if c.list(ctx, addresses) {
			c.news(tick.Event{At: time.Now(), Kind: tick.EventCgroups, Text: "containers have come or gone"})
		}
	}
}

// list asks every runtime, and reports whether anything is new. Of one that
// does not answer, what was known stays: its best-effort work must not be let
// loose.
func (c *containers) list(ctx context.Context, addresses []string) (changed bool) {
	known, trouble := map[string][]container.Container{}, map[string]string{}
	for _, address := range addresses {
		all, err := ask(ctx, address)
		switch {
		case err == nil:
			known[address] = all
		case errors.Is(err, container.ErrAbsent):
		default:
			trouble[address] = err.Error()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, text := range trouble {
		if before, had := c.known[address]; had {
			known[address] = before
		}
		if text != c.trouble[address] {
			c.log.Warn("a container runtime does not tell its containers; what it said last holds", "runtime", address, "error", text)
		}
	}
	for address := range c.trouble {
		if _, still := trouble[address]; !still {
			c.log.Info("a container runtime tells its containers again", "runtime", address)
		}
	}
	changed = !reflect.DeepEqual(known, c.known) || !c.asked
	c.known, c.trouble, c.asked = known, trouble, true
	return changed
}

// ask lists the containers of one runtime, ordered so that two answers can be
// compared.
func ask(ctx context.Context, address string) ([]container.Container, error) {
	runtime, err := container.Open(address)
	if err != nil {
		return nil, err
	}
	defer runtime.Close()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	all, err := runtime.List(ctx)
	slices.SortFunc(all, func(a, b container.Container) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// groups are the containers by the path of their cgroup, and what is to be
// said about them.
func (c *containers) groups(paths []string, fs proc.FS) (map[string]*match.Container, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []container.Container
	for _, address := range slices.Sorted(maps.Keys(c.known)) {
		all = append(all, c.known[address]...)
	}
	var remarks []string
	if len(c.addresses) > 0 && c.asked && len(c.known)+len(c.trouble) == 0 {
		remarks = append(remarks, fmt.Sprintf("rules name containers, and no runtime answers at %s", strings.Join(c.addresses, ", ")))
	}
	return groupsOf(all, paths, fs), remarks
}

func groupsOf(all []container.Container, paths []string, fs proc.FS) map[string]*match.Container {
	of := func(pid int) (string, bool) {
		entries, err := fs.Cgroup(pid)
		return strings.Trim(cgroupOf(entries), "/"), err == nil
	}
	groups := make(map[string]*match.Container, len(all))
	for path, k := range container.Groups(all, paths, of) {
		groups[path] = &match.Container{Name: k.Name, Labels: k.Labels}
	}
	return groups
}

// Containers asks the container runtimes once, if any rule names containers,
// and returns what they say by the path of the cgroup. The errors are about
// runtimes that are there and do not answer.
func Containers(ctx context.Context, rules []match.Rule, addresses, paths []string) (map[string]*match.Container, error) {
	c := newContainers(slog.New(slog.DiscardHandler), nil)
	c.use(rules, addresses)
	c.list(ctx, c.addresses)
	var errs []error
	for _, text := range c.trouble {
		errs = append(errs, errors.New(text))
	}
	groups, _ := c.groups(paths, proc.Default())
	return groups, errors.Join(errs...)
}
