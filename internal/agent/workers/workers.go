// Package workers lets an operator change the size of virtual workers while
// tenond runs (tenon slice). It also shows the CPUs and workloads of the
// workers.
package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/commands"
	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// sizesFile stores the sizes that an operator has chosen since boot, for the
	// next daemon.
	sizesFile = "slices.json"
	// maxWait is the time that a request waits for its effect.
	maxWait = 5 * time.Second
)

// savedSizes is the content of sizesFile.
type savedSizes struct {
	Boot  string         `json:"boot_id"`
	Sizes map[string]int `json:"cpus"` // CPUs of each worker, by the name of the slice
}

// A Desk holds the sizes that an operator chose in place of the configured
// sizes, and the slices of the last tick.
type Desk struct {
	path, boot string
	send       func(tick.Event)

	mu    sync.Mutex
	sizes map[string]int
	all   []worker.Slice // slices of the configuration
	last  []worker.Status
	cpus  unit.CPUSet    // CPUs of the node in the last tick
	sets  commands.Queue // callers of Set
}

// A Pinner carries out requests about isolation mechanisms.
type Pinner interface {
	Pin(ctx context.Context, mechanism node.Mechanism) error
}

// An Operator carries out all requests on the socket of an agent.
type Operator struct {
	Pinner
	*Desk
}

// Open loads the sizes that an operator chose under an earlier daemon since
// boot. If they cannot be read, it logs the error, and the configured sizes
// apply. send must wake the loop.
func Open(dir string, from proc.FS, log *slog.Logger, send func(tick.Event)) (*Desk, error) {
	boot, err := from.BootID()
	if err != nil {
		return nil, err
	}
	d := &Desk{path: filepath.Join(dir, sizesFile), boot: boot, send: send, sizes: map[string]int{}}
	text, err := statedir.ReadFile(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	var last savedSizes
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil {
		log.Warn("the sizes of slices that were set by hand are lost", "file", d.path, "error", err)
		return d, nil
	}
	for name, cpus := range last.Sizes {
		if last.Boot == boot && cpus > 0 {
			d.sizes[name] = cpus
		}
	}
	return d, nil
}

// Begin returns the slices of the configuration with the operator's sizes. Each
// tick calls it at its start.
func (d *Desk) Begin(configured []worker.Slice) []worker.Slice {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = configured
	d.sets.Begin()
	all := slices.Clone(configured)
	for i := range all {
		if cpus, chosen := d.sizes[all[i].Name]; chosen && cpus != all[i].CPUs {
			all[i].Configured, all[i].CPUs = all[i].CPUs, cpus
		}
	}
	return all
}

// End takes the results of a tick. It wakes the callers of Set whose size the
// tick applied, and passes the errors of writes for seats to them. If the tick
// could not read the node, the callers wait for the next tick.
func (d *Desk) End(t tick.Tick) {
	d.mu.Lock()
	defer d.mu.Unlock()
	applied := !t.Snapshot.At.IsZero()
	if applied {
		d.last, d.cpus = t.Slices, t.Snapshot.Topology.All()
	}
	var errs []error
	for _, o := range t.Done {
		if o.Err != nil && o.Step.Owner == plan.OwnerSeat {
			errs = append(errs, fmt.Errorf("%v: %w", o.Step.Knob, o.Err))
		}
	}
	d.sets.End(applied, errors.Join(errs...))
}

// Set changes the number of CPUs of the workers of a slice until the next boot.
// 0 restores the configured number. Set returns after a tick that applied the
// number.
func (d *Desk) Set(ctx context.Context, name string, cpus int) error {
	done, err := d.choose(name, cpus)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("slice %s has workers of %d CPUs by hand", name, cpus)
	if cpus == 0 {
		text = fmt.Sprintf("slice %s has the size of the configuration again", name)
	}
	d.send(tick.Event{At: time.Now(), Kind: tick.EventPin, Text: text})
	if err := commands.Wait(ctx, done, text); err != nil {
		return fmt.Errorf("set the size of slice %s: %w", name, err)
	}
	return nil
}

func (d *Desk) choose(name string, cpus int) (done <-chan error, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, s := range d.all {
		names = append(names, s.Name)
	}
	most := d.cpus.Len()
	switch {
	case len(names) == 0:
		return nil, errors.New("the configuration has no slices: see docs/configuration.md, slices")
	case !slices.Contains(names, name):
		return nil, fmt.Errorf("slice %q: want one of %s", name, strings.Join(names, ", "))
	case cpus < 0 || most > 0 && cpus > most:
		return nil, fmt.Errorf("slice %s: %d: want 1 to %d CPUs, or 0 for the size of the configuration", name, cpus, most)
	}
	next := make(map[string]int, len(d.sizes)+1)
	for other, n := range d.sizes {
		next[other] = n
	}
	if next[name] = cpus; cpus == 0 {
		delete(next, name)
	}
	if err := commands.Save(d.path, savedSizes{d.boot, next}); err != nil {
		return nil, fmt.Errorf("save the size of slice %s: %w", name, err)
	}
	d.sizes = next
	return d.sets.Add(), nil
}

// List returns the slices after the last tick.
func (d *Desk) List() []worker.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]worker.Status{}, d.last...) // not nil, so that the JSON is [], not null
}

// Show registers the handlers of requests about slices. Those that change something are
// answered by an error.
func (d *Desk) Show(mux *http.ServeMux, refused error) {
	d.list(mux)
	mux.HandleFunc("POST /v1/slices", func(w http.ResponseWriter, _ *http.Request) { control.Answer(w, nil, refused) })
}

func (d *Desk) list(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/slices", func(w http.ResponseWriter, _ *http.Request) { control.Answer(w, d.List(), nil) })
}

// Handle registers the handlers of requests about slices.
func (d *Desk) Handle(mux *http.ServeMux) {
	d.list(mux)
	mux.HandleFunc("POST /v1/slices", func(w http.ResponseWriter, r *http.Request) {
		cpus, err := strconv.Atoi(r.FormValue("cpus"))
		if err != nil {
			control.Answer(w, nil, fmt.Errorf("cpus %q: want a whole number from 0", r.FormValue("cpus")))
			return
		}
		ctx, stop := context.WithTimeout(r.Context(), maxWait)
		defer stop()
		err = d.Set(ctx, r.FormValue("name"), cpus)
		control.Answer(w, d.List(), err)
	})
}

// List asks an agent for its slices.
func List(ctx context.Context, c *control.Client) ([]worker.Status, error) {
	return control.Ask[[]worker.Status](ctx, c, http.MethodGet, "slices", nil)
}

// Set asks an agent to change the number of CPUs of the workers of a slice. It
// returns the state of all slices after a tick that applied the number.
func Set(ctx context.Context, c *control.Client, name string, cpus int) ([]worker.Status, error) {
	return control.Ask[[]worker.Status](ctx, c, http.MethodPost, "slices", url.Values{"name": {name}, "cpus": {strconv.Itoa(cpus)}})
}

// Text returns slices as a table with one row for each worker.
func Text(all []worker.Status) string {
	if len(all) == 0 {
		return "The configuration of tenond has no slices.\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %6s  %-16s %s\n", "SLICE", "WORKER", "CPUS", "WORK")
	for _, s := range all {
		for _, w := range s.Workers {
			set := "-"
			switch {
			case !w.CPUs.Empty():
				set = w.CPUs.String()
			case len(w.Work) > 0:
				set = "shared"
			}
			var work []string
			for _, id := range w.Work {
				work = append(work, printable.Text(string(id)))
			}
			fmt.Fprintf(&b, "%-16s %6d  %-16s %s\n", s.Name, w.Number, set, strings.Join(work, ", "))
		}
		if s.Configured > 0 {
			fmt.Fprintf(&b, "Workers of %s have %d CPUs by hand; the configuration says %d.\n", s.Name, s.CPUs, s.Configured)
		}
		if slices.ContainsFunc(s.Workers, func(w worker.Worker) bool { return w.CPUs.Empty() && len(w.Work) > 0 }) {
			fmt.Fprintf(&b, "Work of %s shares CPUs with all other work: workers of %d do not fit into what best-effort work may use now.\n", s.Name, s.CPUs)
		}
	}
	return control.Printable(b.String())
}
