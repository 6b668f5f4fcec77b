// Package rollout decides on which nodes of a cluster batch work is on, while it comes to
// more and more of them.
//
// In each stage a share of the nodes takes part, in random pairs. One node of a pair is
// on for an epoch while the other one is off, and then they swap: the two epochs are a
// block. So each node is compared with itself, and what changes for all nodes at an hour
// hits both ways alike. The measure is that of a trial on one node (package switchback):
// how long the threads of the services wait for a CPU. A stage ends when the blocks show
// that the services wait at most as much longer as the owner allows (non-inferiority).
package rollout

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/trials/switchback"
	"tenon.sh/tenon/internal/model/unit"
)

// A Config is what the owner of the services asks for. Another Config begins a new
// rollout.
type Config struct {
	// Margin is by how much longer services may wait for a CPU.
	Margin unit.Percent `json:"margin_percent"`
	// Shares are the stages: the shares of the nodes that take part, ascending. After the
	// last one, all nodes are on.
	Shares []unit.Percent `json:"shares_percent"`
	// Epoch is the time after which the nodes of a pair swap.
	Epoch time.Duration `json:"epoch_ns"`
	// Attempt counts how often the owner has begun.
	Attempt int64 `json:"attempt,omitempty"`
}

// washOut is the part of an epoch, as a divisor, that does not count: batch work has to
// come or to give way first.
const washOut = 6

// leastEpoch leaves a wash-out of three minutes: a report may be as old, and waits from
// before the swap would count.
const leastEpoch = washOut * 3 * time.Minute

// ErrStages says that the shares of a Config do not ascend.
var ErrStages = errors.New("these stages do not ascend")

// Check returns why the Config cannot be followed, or nil.
func (c Config) Check() error {
	switch {
	case c.Margin < 1 || c.Margin > 100:
		return fmt.Errorf("a margin of %v", c.Margin)
	case c.Epoch < leastEpoch || c.Epoch > 24*time.Hour:
		return fmt.Errorf("an epoch of %v", c.Epoch)
	case len(c.Shares) == 0:
		return fmt.Errorf("%w: none", ErrStages)
	}
	for i, share := range c.Shares {
		if share < 1 || share > 100 || i > 0 && share <= c.Shares[i-1] {
			return fmt.Errorf("%w: %d", ErrStages, c.Shares)
		}
	}
	return nil
}

func (c Config) equal(d Config) bool {
	return c.Margin == d.Margin && c.Epoch == d.Epoch && c.Attempt == d.Attempt && slices.Equal(c.Shares, d.Shares)
}

// part returns how many of all nodes take part in a stage: an even number.
func (c Config) part(stage, all int) int {
	n := int(math.Round(float64(all) * float64(c.Shares[stage]) / 100))
	return min(max(2, n), all) / 2 * 2
}

// next returns the next stage with more nodes, or the number of stages if there is none.
func (c Config) next(stage, all int) int {
	next := stage + 1
	for next < len(c.Shares) && c.part(next, all) <= c.part(stage, all) {
		next++
	}
	return next
}

// allowed returns how many times as long services on nodes that are on may wait for the
// rollout to leave a stage. The owner's margin is about all services of the cluster. So a
// stage in which few nodes are on may be entered with a larger ratio: at most twice.
func (c Config) allowed(stage, all int) float64 {
	on := 1.0
	if next := c.next(stage, all); next < len(c.Shares) {
		on = float64(c.part(next, all)) / 2 / float64(all) // one node of each pair
	}
	return 1 + min(float64(c.Margin)/100/on, 1)
}

// A Phase is what a rollout does.
type Phase string

// The phases.
const (
	Compares Phase = "compares" // in a stage
	Done     Phase = "done"     // all nodes are on
	Back     Phase = "back"     // all nodes are off, until the owner begins again
)

// A State is a rollout as it is stored. A process that ends loses the block that runs, and
// what is usual on each node (Block). The zero State has not begun.
type State struct {
	Config Config    `json:"config"`
	Seed   uint64    `json:"seed"`
	Begun  time.Time `json:"begun"`
	Phase  Phase     `json:"phase"`
	// Stage is the index of the stage, and Since the time at which it or the phase began.
	Stage int       `json:"stage"`
	Since time.Time `json:"since"`

	// Drawn counts the blocks that began, in all stages. Pairs are those of the block that
	// runs: the first node of each is on in the first epoch (Half 0), the second in the
	// second (Half 1). Swapped is the time at which the epoch began.
	Drawn   int         `json:"drawn,omitempty"`
	Pairs   [][2]string `json:"pairs,omitempty"`
	Half    int         `json:"half,omitempty"`
	Swapped time.Time   `json:"swapped,omitzero"`

	// Logs has one value for each pair and block of the stage, or for each group of pairs
	// if there are more than maxLogs in a block: the logarithm of the waits
	// on nodes that are on to those of the same nodes when they are off. Blocks counts the
	// blocks, and Looks how often they were judged.
	Logs   []float64 `json:"logs,omitempty"`
	Blocks int       `json:"blocks,omitempty"`
	Looks  int       `json:"looks,omitempty"`

	// Services has what each service waited in all blocks.
	Services map[string]Ledger `json:"services,omitempty"`
	// Verdicts are those of all looks, and of a way back.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// A Ledger has the waits of a service on nodes that were on and had batch work, and on
// nodes that were off, in the blocks that count. OffFor is the time for which it was
// measured on nodes that were off, added up over the nodes. Nodes is the largest number of
// nodes with the service.
type Ledger struct {
	On  switchback.Count `json:"on"`
	Off switchback.Count `json:"off"`
	// More is what it waited longer than usual on the same node, in all epochs in which a
	// node was on and the service waited several times as long as usual. It fades within a
	// day: MoreAt is the time at which it was so much.
	More   time.Duration `json:"more_ns"`
	MoreAt time.Time     `json:"more_at,omitzero"`
	OffFor time.Duration `json:"off_for_ns"`
	Nodes  int           `json:"nodes"`
}

// A Code says what a rollout does after a look.
type Code string

// The codes.
const (
	Begins   Code = "begins"
	Advances Code = "advances" // to the next stage
	Finishes Code = "finishes" // all nodes are on
	Waits    Code = "waits"    // undecided
	Harm     Code = "harm"     // goes back: services wait longer than the margin allows
	Price    Code = "price"    // goes back: a service has spent its share of the margin
	GivesUp  Code = "gives-up" // goes back: undecided at the last look
)

// A Verdict is what one look found. Ratios are of the waits on nodes that are on to those
// on the same nodes when they are off.
type Verdict struct {
	At    time.Time    `json:"at"`
	Code  Code         `json:"code"`
	Stage int          `json:"stage"`
	Share unit.Percent `json:"share_percent,omitempty"`
	// Nodes is the number of nodes that take part: in the block that ends here, if there is one.
	Nodes  int `json:"nodes,omitempty"`
	Blocks int `json:"blocks,omitempty"`
	Logs   int `json:"pairs,omitempty"` // pairs in all blocks
	// Ratio is the geometric mean. Lower and Upper are its bounds, 0 if there are none.
	Ratio float64 `json:"ratio,omitempty"`
	Lower float64 `json:"lower,omitempty"`
	Upper float64 `json:"upper,omitempty"`
	// Total is the ratio of the mean waits of all epochs of the rollout.
	Total float64 `json:"total,omitempty"`
	// Allowed is the ratio below which Upper ends the stage.
	Allowed float64 `json:"allowed,omitempty"`
	// Noise is the standard deviation of the logarithms.
	Noise float64 `json:"noise,omitempty"`
	// Next is the time to the next look. Decides is the time to the look that ends the
	// stage, if services wait as long as until now; 0: none.
	Next    time.Duration `json:"next_ns,omitempty"`
	Decides time.Duration `json:"decides_ns,omitempty"`
	// Service is the service that waited too long, and Spent what it waited longer than
	// without batch work, as a part of what it may in a day.
	Service string  `json:"service,omitempty"`
	Spent   float64 `json:"spent,omitempty"`
}

// A Node is a node that may take part.
type Node struct {
	Name string
	// Run names the process of the agent that has counted Waits; another process begins
	// anew. Fresh: its report is recent. On: its label says that it is on. Batch: pods
	// there request batch resources.
	Run   string
	Fresh bool
	On    bool
	Batch bool
	// Waits are the counters of the services of the node, by pod.
	Waits map[string]switchback.Count
}

// measured reports whether the node has services whose waits are known.
func (n Node) measured() bool { return n.Fresh && len(n.Waits) > 0 }

// A Block is what one process has measured of the block that runs. The zero Block has
// measured nothing.
type Block struct {
	drawn, half int
	// watched are the counters since the epoch began, and before those since the wash-out.
	watched, before map[string]reading
	first           map[string]map[string]switchback.Count // that compare may use of the first epoch, by node and service
	services        map[string]Ledger                      // with the first epoch
	// usual is what services waited on a node in the last epoch in which it was off.
	usual map[string]map[string]switchback.Count
}

// A reading has the counters of the services of a node, by pod.
type reading struct {
	at    time.Time
	run   string
	batch bool
	waits map[string]switchback.Count
	// later has the time of each pod whose counters were read later than at.
	later map[string]time.Time
}

// since returns the time at which the counters of a pod were read.
func (r reading) since(pod string) time.Time {
	if at, later := r.later[pod]; later {
		return at
	}
	return r.at
}

// IsOn reports whether batch work is on at a node.
func (s State) IsOn(node string) bool {
	switch s.Phase {
	case Done:
		return true
	case Compares:
		return slices.ContainsFunc(s.Pairs, func(p [2]string) bool { return p[s.Half] == node })
	}
	return false
}

// Step decides the next step at a time. It returns the state, which must be stored
// before any node changes if it differs, what this process has measured, and the verdicts
// that are new.
func Step(c Config, s State, b Block, nodes []Node, now time.Time, seed uint64) (State, Block, []Verdict) {
	if s.Phase == "" || !s.Config.equal(c) {
		s = State{Config: c, Seed: seed, Begun: now, Since: now, Phase: Compares}
		s.Verdicts = []Verdict{{At: now, Code: Begins, Share: c.Shares[0], Nodes: c.part(0, len(nodes)), Allowed: c.allowed(0, len(nodes))}}
		return s, Block{}, s.Verdicts
	}
	if s.Phase != Compares {
		return s, Block{}, nil
	}
	read := s.read(nodes, now)
	if s.Drawn == 0 { // all nodes are off: this shows what is usual
		b = b.watch(read, now)
		// Nodes may report late, and a node that is on spends nothing if its usual is not known.
		known := 0
		for name, r := range readBy(b.watched, now.Add(-c.Epoch/2)) {
			if r.run == read[name].run && len(r.lasted(read[name])) > 0 {
				known++
			}
		}
		if known >= 2 {
			watched := readBy(b.watched, now.Add(-c.Epoch/washOut)) // less says too little
			b.usual = waited(watched, read)
			s.Services = s.add(s.Services, watched, read, nodes)
			s, b = s.draw(nodes, b, now)
		}
		return s, b, nil
	}
	passed := now.Sub(s.Swapped)
	if b.drawn != s.Drawn || b.half != s.Half { // another process began this epoch
		b = Block{drawn: s.Drawn, half: s.Half}
	}
	if len(s.Pairs) == 0 { // there were too few nodes
		if next, begun := s.draw(nodes, b, now); len(next.Pairs) > 0 {
			return next, begun, nil
		}
		return s, b, nil
	}
	if s.Half == 1 && b.first == nil || // the first epoch is not known
		passed < 0 || passed > c.Epoch*3/2 || b.before == nil && passed > c.Epoch/2 { // nobody looked
		s, b = s.draw(nodes, b, now)
		return s, b, nil
	}
	b = b.watch(read, now)
	until := s.Services
	if b.services != nil {
		until = b.services
	}
	until = s.spend(until, b, waited(b.watched, read), now)
	if v, over := s.price(until, now); over {
		s.Services = until // what the verdict is about, so that it can be computed again
		s = s.end(Back, v)
		return s, Block{}, []Verdict{v}
	}
	switch {
	case passed < c.Epoch/washOut:
		return s, b, nil
	case b.before == nil:
		b.before = read
		return s, b, nil
	case passed < c.Epoch:
		return s, b, nil
	}
	services := s.add(until, b.before, read, nodes)
	waits := waited(b.before, read)
	usual := map[string]map[string]switchback.Count{}
	maps.Copy(usual, b.usual)
	for name, w := range waits {
		switch {
		case !s.IsOn(name):
			usual[name] = w
		case !b.before[name].batch || !read[name].batch: // this is no comparison with batch work
			delete(waits, name)
		}
	}
	b.usual = usual
	s.Services = withMore(s.Services, services) // whatever becomes of the block
	if s.Half == 0 {
		s.Half, s.Swapped = 1, now
		return s, Block{drawn: s.Drawn, half: 1, first: waits, services: services, usual: usual}, nil
	}
	var v []Verdict
	if logs := grouped(s.compare(b.first, waits)); len(logs) > 0 { // else no pair was measured in both epochs
		s.Logs, s.Blocks, s.Services = append(slices.Clone(s.Logs), logs...), s.Blocks+1, services
		if s.Blocks >= lookAt(s.Looks+1) {
			s = s.look(len(nodes), now)
			if v = s.Verdicts[len(s.Verdicts)-1:]; s.Phase != Compares {
				return s, Block{}, v
			}
		}
	}
	s, b = s.draw(nodes, b, now)
	return s, b, v
}

// watch adds the counters of nodes that have just taken up what they should be, and of pods
// that report later than their node.
func (b Block) watch(read map[string]reading, now time.Time) Block {
	watched := maps.Clone(b.watched)
	if watched == nil {
		watched = map[string]reading{}
	}
	for name, r := range read {
		old, had := watched[name]
		if !had || old.run != r.run || old.at.After(now) { // the last one: the clock was set back
			watched[name] = r
			continue
		}
		watched[name] = old.with(r)
	}
	b.watched = watched
	return b
}

// with adds the pods of a later reading that r lacks.
func (r reading) with(after reading) reading {
	var waits map[string]switchback.Count
	var later map[string]time.Time
	for pod, c := range after.waits {
		if _, had := r.waits[pod]; had {
			continue
		}
		if waits == nil {
			if waits, later = maps.Clone(r.waits), maps.Clone(r.later); later == nil {
				later = map[string]time.Time{}
			}
		}
		waits[pod], later[pod] = c, after.at
	}
	if waits != nil {
		r.waits, r.later = waits, later
	}
	return r
}

// readBy returns the readings with only those pods that were read by a time, and no node
// without such a pod.
func readBy(all map[string]reading, by time.Time) map[string]reading {
	old := map[string]reading{}
	for name, r := range all {
		r.waits = maps.Clone(r.waits)
		maps.DeleteFunc(r.waits, func(pod string, _ switchback.Count) bool { return r.since(pod).After(by) })
		if len(r.waits) > 0 {
			old[name] = r
		}
	}
	return old
}

// end ends the comparison.
func (s State) end(p Phase, v Verdict) State {
	s.Phase, s.Since, s.Pairs, s.Half, s.Swapped = p, v.At, nil, 0, time.Time{}
	s.Verdicts = append(slices.Clone(s.Verdicts), v)
	return s
}

// order returns a number that says which nodes take part first. It depends on nothing
// that changes while the rollout runs.
func (s State) order(name string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(fmt.Sprintf("%d %s", s.Seed, name)) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// draw begins a block: it draws pairs of the nodes of the stage, and which node of each
// is on first. Nodes with services that can be measured take part first. With fewer than
// two of them there are no pairs.
func (s State) draw(nodes []Node, b Block, now time.Time) (State, Block) {
	all := slices.Clone(nodes)
	rank := func(n Node) int {
		if n.measured() {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b Node) int {
		if x, y := rank(a), rank(b); x != y {
			return x - y
		}
		if x, y := s.order(a.Name), s.order(b.Name); x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	n := s.Config.part(s.Stage, len(all))
	part := all[:n]
	s.Drawn++
	rnd := rand.New(rand.NewPCG(s.Seed, uint64(s.Drawn)))
	measured := slices.IndexFunc(part, func(n Node) bool { return rank(n) > 0 })
	if measured < 0 {
		measured = n
	}
	if measured < 2 { // nothing would be seen of what batch work does
		n, part, measured = 0, nil, 0
	}
	for _, p := range [][]Node{part[:measured], part[measured:]} {
		rnd.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
	}
	s.Pairs = nil
	for i := 0; i < n; i += 2 {
		pair := [2]string{part[i].Name, part[i+1].Name}
		if rnd.IntN(2) == 1 {
			pair[0], pair[1] = pair[1], pair[0]
		}
		s.Pairs = append(s.Pairs, pair)
	}
	s.Half, s.Swapped = 0, now
	return s, Block{drawn: s.Drawn, usual: b.usual}
}

// read returns the counters of the nodes of the block, or of all nodes before the first
// block, that are on or off as they should be.
func (s State) read(nodes []Node, now time.Time) map[string]reading {
	part := map[string]bool{}
	for _, p := range s.Pairs {
		part[p[0]], part[p[1]] = true, true
	}
	all := map[string]reading{}
	for _, n := range nodes {
		if (part[n.Name] || s.Drawn == 0) && n.Fresh && n.On == s.IsOn(n.Name) && len(n.Waits) > 0 {
			all[n.Name] = reading{at: now, run: n.Run, batch: n.Batch, waits: n.Waits}
		}
	}
	return all
}

// waited returns what the services of each node have waited between two readings.
func waited(before, after map[string]reading) map[string]map[string]switchback.Count {
	all := map[string]map[string]switchback.Count{}
	for name, now := range after {
		if then, had := before[name]; had && then.run == now.run {
			all[name] = switchback.WaitsBetween(then.waits, now.waits)
		}
	}
	return all
}

// lasted returns for how long each service was read: its pod that was read first.
func (r reading) lasted(after reading) map[string]time.Duration {
	all := map[string]time.Duration{}
	for pod := range after.waits {
		if _, had := r.waits[pod]; had {
			name := switchback.ServiceName(pod)
			all[name] = max(all[name], after.at.Sub(r.since(pod)))
		}
	}
	return all
}

// maxLogs is the number of values of a block that are stored. The state is one ConfigMap,
// which holds 1 MiB.
const maxLogs = 50

// grouped returns at most maxLogs values: the means of groups of as many values, up to one.
// Pairs are in random order, so that the means scatter as little as they should.
func grouped(logs []float64) []float64 {
	if len(logs) <= maxLogs {
		return logs
	}
	means := make([]float64, maxLogs)
	for g := range means {
		group := logs[g*len(logs)/maxLogs : (g+1)*len(logs)/maxLogs]
		for _, v := range group {
			means[g] += v / float64(len(group))
		}
		means[g] = math.Round(means[g]*1e4) / 1e4
	}
	return means
}

// compare returns the value of each pair whose two nodes were measured in both epochs.
func (s State) compare(first, second map[string]map[string]switchback.Count) []float64 {
	var logs []float64
	for _, p := range s.Pairs {
		a, _, okA := switchback.PairOf(second[p[0]], first[p[0]]) // on first
		b, _, okB := switchback.PairOf(first[p[1]], second[p[1]])
		if okA && okB {
			logs = append(logs, math.Round((a+b)/2*1e4)/1e4)
		}
	}
	return logs
}

// maxServices is the number of services whose waits are added up.
const maxServices = 1000

// add adds the waits of an epoch between two readings to those of the services until then.
func (s State) add(until map[string]Ledger, before, after map[string]reading, nodes []Node) map[string]Ledger {
	sum := map[string]Ledger{}
	maps.Copy(sum, until)
	waits := waited(before, after)
	for _, node := range slices.Sorted(maps.Keys(waits)) {
		on := s.IsOn(node)
		if on && !(before[node].batch && after[node].batch) {
			continue
		}
		lasted := before[node].lasted(after[node])
		for name, more := range waits[node] {
			l, has := sum[name]
			switch {
			case !has && len(sum) >= maxServices:
				continue
			case on:
				l.On = l.On.Plus(more)
			default:
				l.Off, l.OffFor = l.Off.Plus(more), l.OffFor+lasted[name]
			}
			sum[name] = l
		}
	}
	on := map[string]int{}
	for _, n := range nodes {
		here := map[string]bool{}
		for pod := range n.Waits {
			if name := switchback.ServiceName(pod); !here[name] {
				here[name] = true
				on[name]++
			}
		}
	}
	for name, l := range sum {
		l.Nodes = max(l.Nodes, on[name])
		sum[name] = l
	}
	return sum
}

// The price is a limit for a harm that no look may wait for. It is no test, so it must be
// out of reach of what services wait longer by themselves.
const (
	// spendable is the part of the margin after which a rollout goes back: waits are seen
	// a minute late.
	spendable = 0.4
	// sudden is how many times as long as usual a service waits in an epoch that counts,
	// and suddenFew the same of a service on fewer than fewNodes: what it waits longer by
	// itself is hardly averaged over nodes, and there may be many such services.
	sudden, suddenFew = 3, 5
	fewNodes          = 4
	// leastWaits is the least number of waits of which a mean is taken.
	leastWaits = 20
	// leastMore is the least time that counts as harm to a service.
	leastMore = time.Second
	// day is the time that the margin is about, and within which More fades to 1/e.
	day = 24 * time.Hour
)

// sudden returns how many times as long as usual the service waits in an epoch that counts.
func (l Ledger) sudden() float64 {
	if l.Nodes < fewNodes {
		return suddenFew
	}
	return sudden
}

// moreAt returns what is left of More.
func (l Ledger) moreAt(now time.Time) time.Duration {
	if l.MoreAt.IsZero() || !now.After(l.MoreAt) {
		return l.More
	}
	return time.Duration(float64(l.More) * math.Exp(-float64(now.Sub(l.MoreAt))/float64(day)))
}

// spend adds what services waited longer on nodes that are on. What a node usually waits
// must be known.
func (s State) spend(until map[string]Ledger, b Block, waits map[string]map[string]switchback.Count, now time.Time) map[string]Ledger {
	sum := map[string]Ledger{}
	maps.Copy(sum, until)
	for _, node := range slices.Sorted(maps.Keys(waits)) {
		if !s.IsOn(node) {
			continue
		}
		for name, w := range waits[node] {
			usual, known := b.usual[node][name]
			l, has := sum[name]
			if !known || !has || min(w.Waits, usual.Waits) < leastWaits || w.Mean() < l.sudden()*usual.Mean() {
				continue
			}
			l.More, l.MoreAt = l.moreAt(now)+time.Duration(float64(w.Waits)*(w.Mean()-usual.Mean())), now
			sum[name] = l
		}
	}
	return sum
}

// withMore returns the services until now with what they have spent, and no other waits.
func withMore(until, with map[string]Ledger) map[string]Ledger {
	sum := map[string]Ledger{}
	maps.Copy(sum, until)
	for name, l := range sum {
		l.More, l.MoreAt = with[name].More, with[name].MoreAt
		sum[name] = l
	}
	return sum
}

// spent returns what a service waited longer because it was on nodes that were on, as a
// part of what the margin allows it on all nodes in a day.
func (l Ledger) spent(margin unit.Percent, now time.Time) float64 {
	more := l.moreAt(now)
	if l.OffFor <= 0 || l.Off.Waited <= 0 || more < leastMore {
		return 0
	}
	usual := float64(l.Off.Waited) / float64(l.OffFor) * float64(max(l.Nodes, 1)) * float64(day)
	return float64(more) / (usual * float64(margin) / 100)
}

// price reports whether a service has spent its part of the margin, and the verdict.
func (s State) price(services map[string]Ledger, now time.Time) (Verdict, bool) {
	v := Verdict{
		At: now, Code: Price, Stage: s.Stage, Share: s.Config.Shares[s.Stage], Nodes: 2 * len(s.Pairs), Blocks: s.Blocks, Logs: len(s.Logs),
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if spent := services[name].spent(s.Config.Margin, now); spent > v.Spent {
			v.Spent, v.Service = spent, name
		}
	}
	return v, v.Spent >= spendable
}
