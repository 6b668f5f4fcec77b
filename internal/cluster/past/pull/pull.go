// Package pull reads the past of nodes from a Prometheus server. It asks one query at a
// time, about some nodes on one day, and writes each finished part into a folder. A
// reading that was broken off goes on with the next part, and the folder gets the same
// bytes.
package pull

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/cluster/past"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/decide/overcommit"
)

// A Choice is what is read. A folder has one.
type Choice struct {
	Rules overcommit.Config `json:"rules"` // of the room
	// Days is the number of whole days, in UTC, that end at the last midnight. A folder
	// that was begun keeps its days. Step is the length of a step in minutes.
	Days int64 `json:"days"`
	Step int64 `json:"step_minutes"`
	// Sample is the number of nodes that are drawn, by pool and size; 0: all.
	Sample int    `json:"sample,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
	// AtOnce is the most nodes of one query, and of a part; 0: 50.
	AtOnce int `json:"nodes_at_once"`
	// NodeLabel is the label of cAdvisor's series with the name of the node, and
	// PoolLabel that of kube_node_labels with the pool. If they are empty, Read finds
	// them.
	NodeLabel string `json:"node_label,omitempty"`
	PoolLabel string `json:"pool_label,omitempty"`
	// Match has labels that all series must have, such as those of one cluster.
	Match map[string]string `json:"match,omitempty"`
}

// Options say what to read, from where, and how.
type Options struct {
	Choice
	Server promapi.Server
	// Dir keeps the finished parts. It has the names of nodes and services.
	Dir string
	Now time.Time
	// Anonymous has Nodes replace the names of nodes, pools and services, and errors
	// have none.
	Anonymous bool
	Patience  time.Duration // the time for one query; 0: two minutes
	// Report is told how far the reading is, after each part and before each wait.
	Report func(Progress)

	wait func(context.Context, time.Duration) error // for tests
}

// Progress says how far a reading is.
type Progress struct {
	Done, Of int // parts
	Queries  int // asked so far
	// Wait is the time until the next attempt at a query that failed with Err.
	Wait time.Duration
	Err  error
}

// A Failure is the error of a query that stays without an answer.
type Failure struct {
	What  string // for people
	Text  string // the expression; empty if names must not be shown
	Tries int
	Err   error
}

func (f *Failure) Error() string {
	s := "ask Prometheus for " + f.What
	if f.Tries > 1 {
		s += fmt.Sprintf(" (%d times)", f.Tries)
	}
	if f.Text != "" {
		s += fmt.Sprintf(" with %.600s", f.Text)
	}
	return s + ": " + f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }

// The errors of a server that does not have what is needed, and of a folder.
var (
	ErrNoNodes    = errors.New("the server has no series about nodes in these days: want those of kube-state-metrics, of cAdvisor (the kubelet) or of node_exporter")
	ErrNoUse      = errors.New("the server has no series about the use of nodes: want container_cpu_usage_seconds_total of cAdvisor, or node_cpu_seconds_total of node_exporter")
	ErrNoLabel    = errors.New("no label of container_cpu_usage_seconds_total has the names of the nodes")
	ErrNoSize     = errors.New("no series has the size of the nodes: want kube_node_status_capacity, machine_cpu_cores with machine_memory_bytes, or those of node_exporter")
	ErrNoRequests = errors.New("the rules of the room count requests, and the server has no kube_pod_container_resource_requests")
	ErrClusters   = errors.New("the server knows several clusters")
	ErrOther      = errors.New("the folder was begun with other options")
	ErrNoManifest = errors.New("the folder has parts, but no " + manifest + " that says what they are of")
)

// An interruption is the error of a context that has ended.
type interruption struct{ cause error }

func (i interruption) Error() string { return "interrupted" }

func (i interruption) Unwrap() error { return i.cause }

const (
	tries = 7
	// firstTries is the number of attempts to reach a server that has not answered yet:
	// its address may be wrong.
	firstTries = 3
	firstWait  = time.Second
	maxWait    = time.Minute
	// shortest is the shortest time that is asked for, if the server refuses a query
	// about one node.
	shortest = 2 * 3600
)

// A puller reads.
type puller struct {
	Options
	client   *promapi.Client
	progress Progress
	most     int  // nodes in one query, as the server allowed
	answered bool // a query, at least once

	// A network that stands still looks like a server that is too slow, so most grows
	// again after calm parts that kept it. Each time that this was too early, it takes
	// twice as many.
	calm, want int
}

// kept says that a part is finished. before was the most nodes of a query at its begin.
func (p *puller) kept(before int) {
	if p.most < before {
		p.calm, p.want = 0, max(1, 2*p.want)
		return
	}
	if p.calm++; p.most < p.AtOnce && p.calm >= p.want {
		p.calm, p.most = 0, min(p.AtOnce, 2*p.most)
	}
}

func (o *Options) complete() error {
	if o.AtOnce <= 0 {
		o.AtOnce = 50
	}
	if o.Patience <= 0 {
		o.Patience = 2 * time.Minute
	}
	if o.Report == nil {
		o.Report = func(Progress) {}
	}
	if o.wait == nil {
		o.wait = wait
	}
	switch {
	case o.Days < 1 || o.Days > 400:
		return fmt.Errorf("%d days: want 1 to 400", o.Days)
	case o.Step < 1 || o.Step > 60 || 60%o.Step != 0:
		return fmt.Errorf("a step of %d minutes: want a part of an hour", o.Step)
	case o.Sample < 0:
		return fmt.Errorf("a sample of %d nodes: want 0 for all, or more", o.Sample)
	}
	return nil
}

// Read reads what is missing in the folder, and returns what it then has.
func Read(ctx context.Context, o Options) (*Past, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	client, err := o.Server.Open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	p := &puller{Options: o, client: client, most: o.AtOnce}
	f, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.fill(ctx, f); err != nil {
		return nil, err
	}
	return &Past{folder: f, anonymous: o.Anonymous}, nil
}

func (p *puller) asked() asked { return asked{p.Server.URL, p.Server.Sender(), p.Choice} }

// begin opens the folder, or begins one with what the server has.
func (p *puller) begin(ctx context.Context) (*folder, error) {
	f, err := open(p.Dir, p.asked())
	if f != nil || err != nil {
		return f, err
	}
	w := past.Window{First: p.Now.Unix()/day - p.Days, Days: p.Days, Step: p.Step}
	found, err := p.survey(ctx, w)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("nothing is in %s yet, and the same command begins again: %w", p.Dir, interruption{ctx.Err()})
	}
	if err != nil {
		return nil, fmt.Errorf("find out what the server has: %w", err)
	}
	found.Format, found.Asked, found.Window = format, p.asked(), w
	return create(p.Dir, found)
}

// fill reads the parts that are missing, day by day.
func (p *puller) fill(ctx context.Context, f *folder) error {
	parts := f.parts()
	p.progress.Of = int(f.Window.Days) * len(parts)
	for i := range f.Window.Days {
		for j, machines := range parts {
			if of := f.Window.First + i; !f.has(of, j) {
				before := p.most
				nodes, err := p.part(ctx, f, of, machines)
				if err != nil && ctx.Err() != nil {
					err = interruption{ctx.Err()}
				}
				if err != nil {
					return fmt.Errorf("%d of %d parts are in %s, and the same command with --keep %s goes on there: %w", p.progress.Done, p.progress.Of, p.Dir, p.Dir, err)
				}
				if err := f.keep(of, j, nodes); err != nil {
					return err
				}
				p.kept(before)
			}
			p.progress.Done++
			p.Report(p.progress)
		}
	}
	return nil
}

// part reads what was measured on some nodes on one day.
func (p *puller) part(ctx context.Context, f *folder, of int64, machines []past.Machine) ([]past.NodeDay, error) {
	t := newTable(f.Window, of, machines)
	for i, q := range f.Sources.Queries(p.Rules, machines, f.Window.Step*60) {
		ask := question{
			what: fmt.Sprintf("%s of %d nodes on %s", q.Column, len(machines), dateOf(of)), span: t.span(),
			text: func(some []past.Machine) string { return f.Sources.Queries(p.Rules, some, f.Window.Step*60)[i].Text },
		}
		if err := p.each(ctx, ask, machines, func(lines []promapi.Line) error { return t.add(q, lines) }); err != nil {
			return nil, err
		}
	}
	t.forget()
	if err := p.held(ctx, f, t, machines); err != nil {
		return nil, err
	}
	return t.nodes, nil
}

// A question is about some machines and times.
type question struct {
	what string
	text func([]past.Machine) string
	span promapi.Span
}

// each asks a question and passes the answers on. If the server refuses it because it is
// too large, each asks it in halves: of the nodes, or of the time of one node.
func (p *puller) each(ctx context.Context, q question, machines []past.Machine, use func([]promapi.Line) error) error {
	for len(machines) > p.most {
		some := machines[:p.most]
		if err := p.each(ctx, q, some, use); err != nil {
			return err
		}
		machines = machines[len(some):]
	}
	lines, err := p.ask(ctx, q.what, q.text(machines), q.span)
	refused, is := errors.AsType[*promapi.Refusal](err)
	switch n, seconds := len(machines), q.span.Last-q.span.First; {
	case err == nil:
		return use(lines)
	case !is || refused.Cause != promapi.TooMuch:
		return err
	case n > 1:
		p.most = (n + 1) / 2
		return p.each(ctx, q, machines, use)
	case seconds < 2*shortest:
		return err
	default:
		early, late := q, q
		early.span.Last = q.span.First + seconds/2/q.span.Every*q.span.Every
		late.span.First = early.span.Last + q.span.Every
		if err := p.each(ctx, early, machines, use); err != nil {
			return err
		}
		return p.each(ctx, late, machines, use)
	}
}

// ask asks a query until the server answers it or refuses it for good.
func (p *puller) ask(ctx context.Context, what, text string, s promapi.Span) ([]promapi.Line, error) {
	pause := firstWait
	for try := 1; ; try++ {
		p.progress.Queries++
		lines, err := p.client.Evaluate(ctx, text, s, p.Patience)
		refused, is := errors.AsType[*promapi.Refusal](err)
		if !is {
			p.answered = p.answered || err == nil
			return lines, err
		}
		failed := &Failure{What: what, Text: text, Tries: try, Err: err}
		if p.Anonymous {
			failed.Text, failed.Err = "", withoutNames(refused)
		}
		most := tries
		if !p.answered && refused.Status == 0 {
			most = firstTries
		}
		if refused.Cause != promapi.Busy || try >= most {
			return nil, failed
		}
		now := p.progress
		now.Wait, now.Err = min(max(pause, refused.After), maxWait), failed
		p.Report(now)
		if err := p.wait(ctx, now.Wait); err != nil {
			return nil, err
		}
		pause *= 2
	}
}

// withoutNames returns a refusal without the words of the server, which may repeat names
// of the query. What the network says has none.
func withoutNames(r *promapi.Refusal) *promapi.Refusal {
	if r.Status == 0 {
		return r
	}
	hidden := *r
	hidden.Detail = "what the server says may have names"
	return &hidden
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
