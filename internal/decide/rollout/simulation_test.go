package rollout

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/trials/switchback"
	"tenon.sh/tenon/internal/model/unit"
)

// A cluster is a simulated one. Each node has its own mean wait, each hour its own
// factor for all nodes, and each epoch of a node has noise: noise is the standard
// deviation of the logarithm of the ratio of two epochs of one node.
type cluster struct {
	nodes  int
	margin unit.Percent
	shares []unit.Percent // nil: 5, 25 and 100 %
	noise  float64
	// harm is by how much longer services wait on nodes that are on. grows: it is so after
	// a day, and nothing at first. kept is the part of it that is still there in the epoch
	// after.
	harm  float64
	grows bool
	kept  float64
	// one: the harm is to one service of three. rare: it is in one epoch of ten, e² times.
	one, rare bool
	heavy     bool    // noise with the tails of Student's t with 3 degrees of freedom
	common    float64 // the standard deviation of a second noise, which neighbouring epochs share
	deploys   bool    // each six hours, all services become 1.5 times as slow or as fast, pod by pod
	churn     bool    // each hour one node of twenty is replaced
	steps     int     // for each epoch; 0: 6
	// services is their number, 0: 3. Each is on so many nodes, 0: on all of them; then
	// each has noise of its own on each node.
	services, on int
}

// A result is the end of one simulated rollout.
type result struct {
	phase Phase
	code  Code
	took  time.Duration
	spent float64 // what the worst service really waited longer in the day, as a part of its margin
}

const (
	simRate = 1000. // waits a second
	simWait = 1e5   // ns
)

// podSuffix is what a Deployment appends to the names of its pods.
func podSuffix(generation int) string {
	const letters = "bcdfghjklmnpqrst"
	at := func(i int) string { return string(letters[generation>>(4*i)%16]) }
	return "-bcdfghj" + at(1) + at(0) + "-x2x4z"
}

type simulated struct {
	name           string
	base           float64
	log, own, held float64 // noise: of the epoch, shared by epochs, harm of the last epoch
	deployed       float64
	counts         map[int]*switchback.Count // by service
	noise          map[int]float64           // of the epoch, by service
	pod            int
}

func (c cluster) run(rnd *rand.Rand) result {
	config := Config{Margin: c.margin, Shares: c.shares, Epoch: 30 * time.Minute}
	if config.Shares == nil {
		config.Shares = []unit.Percent{5, 25, 100}
	}
	simSteps := max(c.steps, 6)
	begun := time.Unix(1_800_000_000, 0)
	var made int
	services, each := c.services, c.on
	if services == 0 {
		services = 3
	}
	if each == 0 {
		each = c.nodes
	}
	add := func() *simulated {
		n := &simulated{name: fmt.Sprintf("node-%d", made+1), base: math.Exp(rnd.NormFloat64() / 2), counts: map[int]*switchback.Count{}, noise: map[int]float64{}}
		for k := range services {
			if (made+c.nodes-k*each%c.nodes)%c.nodes < each {
				n.counts[k] = &switchback.Count{}
			}
		}
		made++
		return n
	}
	nodes := make([]*simulated, c.nodes)
	for i := range nodes {
		nodes[i] = add()
	}
	draw := rnd.NormFloat64
	if c.heavy {
		draw = func() float64 {
			a, b, d := rnd.NormFloat64(), rnd.NormFloat64(), rnd.NormFloat64()
			return rnd.NormFloat64() / math.Sqrt((a*a+b*b+d*d)/3) / math.Sqrt(3)
		}
	}
	var s State
	var b Block
	more, usual := make([]float64, services), make([]float64, services)
	step := config.Epoch / time.Duration(simSteps)
	hour, swapped := 0.0, begun
	seen := make([]Node, c.nodes)
	at := begun
	for i := 0; at.Sub(begun) < 24*time.Hour; i++ {
		for j, n := range nodes {
			waits := make(map[string]switchback.Count, len(n.counts))
			for k, count := range n.counts {
				waits[fmt.Sprintf("shop/s%d%s", k, podSuffix(n.pod))] = *count
			}
			seen[j] = Node{Name: n.name, Run: "r", Fresh: true, On: s.IsOn(n.name), Batch: true, Waits: waits}
		}
		s, b, _ = Step(config, s, b, seen, at, rnd.Uint64())
		if s.Phase == Back || s.Phase == Done {
			break
		}
		since := at.Sub(begun).Hours()
		if swapped != s.Swapped || i == 0 {
			swapped = s.Swapped
			hour = 0.5*math.Sin(2*math.Pi*since/24) + 0.2*rnd.NormFloat64()
			for _, n := range nodes {
				n.own = 0.7*n.own + math.Sqrt(1-0.49)*c.common*rnd.NormFloat64()
				n.log = c.noise / math.Sqrt2 * draw()
				n.held *= c.kept
				for k := range services {
					if n.counts[k] != nil && c.on > 0 {
						n.noise[k] = c.noise / math.Sqrt2 * draw()
					}
				}
			}
		}
		if c.churn && i%(2*simSteps) == simSteps {
			for range max(1, c.nodes/20) {
				nodes[rnd.IntN(c.nodes)] = add()
			}
		}
		for _, n := range nodes {
			if c.deploys && i%(12*simSteps) >= 11*simSteps && n.deployed == 0 && rnd.IntN(simSteps) == 0 {
				n.deployed = 0.4
				n.base *= math.Exp(n.deployed * float64(2*rnd.IntN(2)-1))
				n.pod++
				for k := range n.counts {
					n.counts[k] = &switchback.Count{}
				}
			} else if i%(12*simSteps) == 0 {
				n.deployed = 0
			}
			harm := 0.0
			if s.IsOn(n.name) {
				harm = c.harm
				if c.grows {
					harm *= since / 24
				}
				if c.rare {
					if harm = 0; math.Mod(math.Abs(n.log)*1e6, 10) < 1 {
						harm = math.E*math.E - 1
					}
				}
				n.held = harm
			} else {
				harm = n.held * c.kept
			}
			waits := simRate * step.Seconds()
			for k := range services {
				if n.counts[k] == nil {
					continue
				}
				wait := simWait * n.base * math.Exp(hour+n.log+n.own+n.noise[k])
				extra := wait * harm
				if c.one && k != 0 {
					extra = 0
				}
				usual[k] += waits * wait
				more[k] += waits * extra
				n.counts[k].Waits += int64(waits)
				n.counts[k].Waited += time.Duration(waits * (wait + extra))
			}
		}
		at = at.Add(step)
	}
	r := result{phase: s.Phase, took: at.Sub(begun)}
	r.code = s.Verdicts[len(s.Verdicts)-1].Code
	for k := range services {
		day := usual[k] / r.took.Hours() * 24
		r.spent = max(r.spent, more[k]/day/(float64(c.margin)/100))
	}
	return r
}

// A row is one kind of cluster. bad: hardly any rollout may have all nodes on after a
// day. good: 80 of 100 must.
type row struct {
	what string
	cluster
	bad, good bool
	// quiet: hardly any rollout may go back for the price.
	quiet bool
}

func rows() []row {
	var all []row
	for _, n := range []int{4, 20, 100} {
		for _, noise := range []float64{0.1, 0.17, 0.5} {
			all = append(all,
				row{"none", cluster{nodes: n, margin: 10, noise: noise}, false, noise < 0.15 || n > 4 && noise < 0.4, true},
				row{"10 %", cluster{nodes: n, margin: 10, noise: noise, harm: 0.1}, true, false, false})
		}
	}
	hard := cluster{nodes: 20, margin: 10, noise: 0.17}
	with := func(what string, f func(*cluster)) {
		c := hard
		f(&c)
		all = append(all, row{what, c, c.harm >= 0.1 && c.kept == 0 && !(c.grows && c.harm < 0.5), false, c.harm == 0 && !c.rare && c.noise < 1})
	}
	with("none, noise with heavy tails", func(c *cluster) { c.heavy = true })
	with("10 %, noise with heavy tails", func(c *cluster) { c.heavy, c.harm = true, 0.1 })
	with("none, noise that lasts for hours", func(c *cluster) { c.common = 0.3 })
	with("10 %, noise that lasts for hours", func(c *cluster) { c.common, c.harm = 0.3, 0.1 })
	with("none, deploys", func(c *cluster) { c.deploys = true })
	with("10 %, deploys", func(c *cluster) { c.deploys, c.harm = true, 0.1 })
	with("none, nodes come and go", func(c *cluster) { c.churn = true })
	with("10 %, nodes come and go", func(c *cluster) { c.churn, c.harm = true, 0.1 })
	with("10 %, a third of it stays for an epoch", func(c *cluster) { c.kept, c.harm = 0.33, 0.1 })
	with("20 % after a day, grows", func(c *cluster) { c.grows, c.harm = true, 0.2 })
	with("100 % after a day, grows", func(c *cluster) { c.grows, c.harm = true, 1 })
	with("30 % of one service of three", func(c *cluster) { c.one, c.harm = true, 0.3 })
	with("e² times in one epoch of ten", func(c *cluster) { c.rare = true })
	with("5 %", func(c *cluster) { c.harm = 0.05 })
	with("20 %", func(c *cluster) { c.harm = 0.2 })
	with("three times", func(c *cluster) { c.harm, c.steps = 2, 30 })
	with("30 times", func(c *cluster) { c.harm, c.steps = 29, 30 })
	hard.nodes = 4
	with("three times", func(c *cluster) { c.harm, c.steps = 2, 30 })
	with("30 times", func(c *cluster) { c.harm, c.steps = 29, 30 })
	hard.margin = 20
	with("none", func(*cluster) {})
	with("20 %", func(c *cluster) { c.harm = 0.2 })
	hard.nodes, hard.margin = 100, 5
	with("none", func(*cluster) {})
	with("10 %", func(c *cluster) { c.harm = 0.1 })
	hard.margin, hard.noise = 10, 1.2
	with("none", func(*cluster) {})
	with("10 %", func(c *cluster) { c.harm = 0.1 })
	for _, n := range []int{4, 20} {
		for _, on := range []int{1, 2, 4} {
			for _, services := range []int{3, 30} {
				hard = cluster{nodes: n, margin: 10, noise: 0.17, on: on, services: services}
				spread := fmt.Sprintf(", %d services on %d each", services, on)
				with("none"+spread, func(*cluster) {})
				with("30 times"+spread, func(c *cluster) { c.harm, c.steps = 29, 30 })
			}
		}
	}
	return all
}

// TestErrorRates prints how often simulated rollouts end in which way. The long form is
// the table of the experiment.
func TestErrorRates(t *testing.T) {
	runs, long := 25, os.Getenv("TENON_TEST_LONG") != ""
	var table strings.Builder
	mostly := func(n int, p float64) bool { // not many more than a share p of the runs
		mean := p * float64(runs)
		return float64(n) <= mean+2.5*math.Sqrt(mean)
	}
	fmt.Fprintf(&table, "%-42s %5s %6s %5s | %6s %6s %6s %6s | %6s %6s | %5s %5s %5s\n", "harm", "nodes", "margin", "noise", "all on", "waits", "harm", "price", "P50 h", "P80 h", "spent", "most", "over")
	for i, r := range rows() {
		if !long && r.nodes > 20 {
			continue
		}
		if long {
			if runs = 300; r.nodes > 20 { // these take longest
				runs = 200
			}
		}
		counts, took, spent, most, over := map[Code]int{}, []float64{}, 0.0, 0.0, 0
		for j := range runs {
			one := r.run(rand.New(rand.NewPCG(uint64(i), uint64(j))))
			if one.phase == Compares {
				one.code = Waits
			}
			counts[one.code]++
			if one.phase == Done {
				took = append(took, one.took.Hours())
			}
			spent += one.spent / float64(runs)
			most = max(most, one.spent)
			if one.spent > 1 {
				over++
			}
		}
		switch all := counts[Finishes]; {
		case r.bad && !mostly(all, wrong):
			t.Errorf("%s, %d nodes, noise %v: %d of %d rollouts have all nodes on", r.what, r.nodes, r.noise, all, runs)
		case r.good && !mostly(runs-all, 0.2):
			t.Errorf("%s, %d nodes, noise %v: only %d of %d rollouts have all nodes on", r.what, r.nodes, r.noise, all, runs)
		case r.quiet && !mostly(counts[Price], 0.01):
			t.Errorf("%s, %d nodes, noise %v: %d of %d rollouts go back for the price", r.what, r.nodes, r.noise, counts[Price], runs)
		case r.steps > 0 && (!mostly(over, 0.05) || r.harm > 3 && r.on != 1 && !mostly(over, 0.01) || most > 1.5):
			t.Errorf("%s, %d nodes: in %d of %d rollouts a service spent its margin, at most %.2f of it", r.what, r.nodes, over, runs, most)
		}
		share := func(c Code) float64 { return 100 * float64(counts[c]) / float64(runs) }
		fmt.Fprintf(&table, "%-42s %5d %5d%% %5.2f | %5.1f%% %5.1f%% %5.1f%% %5.1f%% | %6s %6s | %5.2f %5.2f %4.1f%%\n", r.what, r.nodes, r.margin, r.noise,
			share(Finishes), share(Waits), share(Harm), share(Price), quantile(took, 0.5, runs), quantile(took, 0.8, runs), spent, most, 100*float64(over)/float64(runs))
	}
	t.Logf("24 hours each\n%s", table.String())
}

// quantile returns the time within which a share of all rollouts had all nodes on.
func quantile(took []float64, q float64, of int) string {
	if float64(len(took)) < q*float64(of) {
		return "–"
	}
	sorted := append([]float64{}, took...)
	for i := range sorted {
		for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}
	return fmt.Sprintf("%.0f", sorted[int(math.Ceil(q*float64(of)))-1])
}
