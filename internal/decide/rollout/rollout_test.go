package rollout

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/trials/switchback"
	"tenon.sh/tenon/internal/model/unit"
)

var (
	begin = time.Unix(1_800_000_000, 0).UTC()
	plain = Config{Margin: 10, Shares: []unit.Percent{5, 25, 100}, Epoch: 30 * time.Minute}
)

// A play is a rollout of nodes whose services wait alike, but harm times as long on nodes
// that are on. lag is the time for which a node is not yet what it should be.
type play struct {
	nodes  []Node
	config Config
	state  State
	block  Block
	at     time.Time
	harm   float64
	base   []float64 // of each node: how many times as long its service waits; nil: once
	rnd    *rand.Rand
}

func newPlay(n int) *play {
	p := &play{config: plain, at: begin, harm: 1, rnd: rand.New(rand.NewPCG(1, 2))}
	for i := range n {
		p.nodes = append(p.nodes, Node{Name: fmt.Sprintf("n%03d", i), Run: "a", Fresh: true, Batch: true, Waits: map[string]switchback.Count{"shop/web-0": {}}})
	}
	return p
}

func (p *play) step(t *testing.T) []Verdict {
	t.Helper()
	for i := range p.nodes {
		n := &p.nodes[i]
		c := n.Waits["shop/web-0"]
		wait := 1e5 * (1 + 0.1*p.rnd.Float64())
		if n.On {
			wait *= p.harm
		}
		if p.base != nil {
			wait *= p.base[i]
		}
		if n.Waits = maps.Clone(n.Waits); n.Waits == nil {
			n.Waits = map[string]switchback.Count{}
		}
		n.Waits["shop/web-0"] = switchback.Count{Waits: c.Waits + 1000, Waited: c.Waited + time.Duration(1000*wait)}
	}
	var said []Verdict
	p.state, p.block, said = Step(p.config, p.state, p.block, p.nodes, p.at, 7)
	for i := range p.nodes {
		p.nodes[i].On = p.state.IsOn(p.nodes[i].Name)
	}
	if err := p.state.Check(); err != nil {
		t.Fatalf("after %v: %v", p.at.Sub(begin), err)
	}
	p.at = p.at.Add(time.Minute)
	return said
}

func (p *play) until(t *testing.T, code Code, most time.Duration) Verdict {
	t.Helper()
	for p.at.Sub(begin) < most {
		for _, v := range p.step(t) {
			if v.Code == code {
				return v
			}
		}
	}
	t.Fatalf("no verdict %s within %v; the last is %+v", code, most, p.state.Verdicts[len(p.state.Verdicts)-1])
	return Verdict{}
}

// restart has another process go on with what was stored.
func (p *play) restart(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(p.state)
	if err != nil {
		t.Fatal(err)
	}
	var back State
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(back); err != nil || string(again) != string(text) {
		t.Fatalf("%v: a state is read as another one:\n%s\n%s", err, text, again)
	}
	p.state, p.block = back, Block{}
}

func (p *play) on() (n int) {
	for _, one := range p.nodes {
		if one.On {
			n++
		}
	}
	return n
}

// TestAStageHasHalfOfItsNodesOn follows a rollout to its end: at no time are more nodes on
// than the stage has pairs, and a node is never on in both epochs of a block.
func TestAStageHasHalfOfItsNodesOn(t *testing.T) {
	p := newPlay(40)
	for p.state.Phase != Done {
		before := p.state
		p.step(t)
		if s := p.state; s.Phase == Compares {
			if p.on() != len(s.Pairs) || p.on() > s.Config.part(s.Stage, 40)/2 {
				t.Fatalf("%d of 40 nodes are on in stage %d with %d pairs", p.on(), s.Stage, len(s.Pairs))
			}
			if s.Half == 1 && before.Half == 0 && !reflect.DeepEqual(s.Pairs, before.Pairs) {
				t.Fatal("the pairs of a block change in its middle")
			}
		}
		if p.at.Sub(begin) > 48*time.Hour {
			t.Fatalf("undecided: %+v", p.state.Verdicts)
		}
	}
	if p.on() != 40 {
		t.Errorf("%d nodes are on in the end", p.on())
	}
	var codes []Code
	for _, v := range p.state.Verdicts {
		codes = append(codes, v.Code)
	}
	if want := []Code{Begins, Advances, Advances, Finishes}; !reflect.DeepEqual(codes, want) {
		t.Errorf("verdicts %v, want %v", codes, want)
	}
}

// TestStagesOfAsManyNodesAreOne has four nodes, of which 5 and 25 % are the same two.
func TestStagesOfAsManyNodesAreOne(t *testing.T) {
	p := newPlay(4)
	if v := p.until(t, Advances, 24*time.Hour); v.Nodes != 2 || v.Allowed != 1.2 || p.state.Stage != 2 {
		t.Errorf("stage %d after %+v", p.state.Stage, v)
	}
	if v := p.until(t, Finishes, 24*time.Hour); v.Nodes != 4 || v.Allowed != 1.1 {
		t.Errorf("the end is %+v", v)
	}
}

// TestHarmGoesBack has services that wait a third longer on nodes that are on.
func TestHarmGoesBack(t *testing.T) {
	p := newPlay(20)
	p.harm = 1.33
	v := p.until(t, Harm, 48*time.Hour)
	if p.on() != 0 || p.state.Phase != Back || v.Lower < 1.1 || v.Ratio < 1.25 || v.Ratio > 1.41 {
		t.Errorf("%d nodes are on, in phase %s, after %+v", p.on(), p.state.Phase, v)
	}
	for range 3000 {
		if said := p.step(t); len(said) > 0 || p.on() > 0 {
			t.Fatalf("it comes back by itself: %+v", said)
		}
	}
	p.config.Attempt++
	if said := p.step(t); len(said) != 1 || said[0].Code != Begins {
		t.Errorf("the owner begins again, and is told %+v", said)
	}
}

// TestALargeHarmEndsWithinAnEpoch has services that wait thirty times as long on nodes
// that are on. No epoch has ended by then.
func TestALargeHarmEndsWithinAnEpoch(t *testing.T) {
	p := newPlay(4)
	p.harm = 30
	v := p.until(t, Price, time.Hour)
	if p.on() != 0 || v.Service != "shop/web" || v.Spent < spendable || v.Spent > 1 || v.Blocks != 0 || v.Nodes != 2 {
		t.Errorf("%d nodes are on after %+v", p.on(), v)
	}
	p.restart(t)
	if again := p.state.Services[v.Service].spent(p.config.Margin, v.At); math.Abs(again-v.Spent) > 1e-9 {
		t.Errorf("by the stored numbers it has spent %v, and the verdict says %v", again, v.Spent)
	}
}

// TestWhatIsUsualIsReadOnNodesThatReportLater begins when no agent has reported, as when a
// rollout is installed together with Tenon, or when only two have. A large harm must end
// within the first epoch.
func TestWhatIsUsualIsReadOnNodesThatReportLater(t *testing.T) {
	for late, nodes := range map[int][]int{3: {0, 1, 2, 3}, 15: {0, 1, 2, 3}, 16: {1, 2, 3}, 100: {0, 1, 2, 3}} {
		p := newPlay(4)
		p.harm = 30
		for range late {
			for _, i := range nodes {
				p.nodes[i].Fresh = false
			}
			p.step(t)
		}
		for _, i := range nodes {
			p.nodes[i].Fresh = true
		}
		reported := p.at
		v := p.until(t, Price, time.Duration(late)*time.Minute+plain.Epoch*3/2)
		if v.Spent > 1 {
			t.Errorf("%d nodes %d minutes late: it goes back late: %+v", len(nodes), late, v)
		}
		if since := v.At.Sub(reported); since < plain.Epoch/2 {
			t.Errorf("%d nodes %d minutes late: a node is on within %v", len(nodes), late, since)
		}
		if most := time.Duration(len(p.nodes)) * plain.Epoch / 2; len(nodes) == 4 && p.state.Services["shop/web"].OffFor > most {
			t.Errorf("%d minutes late: the services were read for %v, want %v: the time without reports counts", late, p.state.Services["shop/web"].OffFor, most)
		}
	}
}

// TestWhatIsUsualIsReadOfServicesThatCountLater has a service that is in no report at first
// and waits thirty times as long on nodes that are on. Others wait as long as ever.
func TestWhatIsUsualIsReadOfServicesThatCountLater(t *testing.T) {
	p := newPlay(4)
	var v Verdict
	for v.Code != Price {
		for i := range p.nodes {
			n := &p.nodes[i]
			more := switchback.Count{Waits: 1000, Waited: 100 * time.Millisecond}
			if n.On {
				more.Waited *= 30
			}
			if p.at.Sub(begin) >= 3*time.Minute {
				n.Waits["shop/late-0"] = n.Waits["shop/late-0"].Plus(more)
			}
		}
		if said := p.step(t); len(said) > 0 {
			v = said[0]
		}
		if p.at.Sub(begin) > plain.Epoch*3/2 {
			t.Fatalf("it goes on after the first epoch: %+v", p.state.Services)
		}
	}
	// The rollout begins at the first step, and reads from the second on.
	l, whole := p.state.Services["shop/late"], p.state.Services["shop/web"]
	if v.Service != "shop/late" || whole.OffFor != 4*15*time.Minute || l.OffFor != 4*13*time.Minute {
		t.Errorf("%+v after %v of the service that comes late, and %v", v, l.OffFor, whole.OffFor)
	}
}

// TestAShortWhileIsNotUsual has a service that comes just before nodes are on, and hardly
// waits at first. From then on it waits a hundred times as long, whatever nodes are.
func TestAShortWhileIsNotUsual(t *testing.T) {
	p := newPlay(4)
	for p.at.Sub(begin) < 8*time.Hour {
		since := p.at.Sub(begin)
		more := switchback.Count{Waits: 1000, Waited: 100 * time.Millisecond}
		if p.state.Drawn == 0 {
			more.Waited /= 100
		}
		if since >= 12*time.Minute {
			for i := range p.nodes {
				p.nodes[i].Waits["shop/late-0"] = p.nodes[i].Waits["shop/late-0"].Plus(more)
			}
		}
		p.step(t)
		if p.state.Phase == Back {
			t.Fatalf("it went back after %v: %+v", since, p.state.Verdicts[len(p.state.Verdicts)-1])
		}
		if l, has := p.state.Services["shop/late"]; p.state.Drawn == 1 && p.state.Half == 0 && has {
			t.Fatalf("a short while is what it waits without batch work: %+v", l)
		}
	}
}

// TestAClockThatIsSetBackDelaysNothing sets it back while no node is on.
func TestAClockThatIsSetBackDelaysNothing(t *testing.T) {
	p := newPlay(4)
	for range 5 {
		p.step(t)
	}
	p.at = p.at.Add(-24 * time.Hour)
	for m := 0; p.state.Drawn == 0; m++ {
		if p.step(t); m > 20 {
			t.Fatalf("no node is on after %d minutes", m)
		}
	}
}

// TestAVerdictHasTheNodesThatTookPart has a cluster that grows during a block.
func TestAVerdictHasTheNodesThatTookPart(t *testing.T) {
	for code, blocks := range map[Code]int{Price: 0, Advances: 2} {
		p := newPlay(4)
		for len(p.state.Pairs) == 0 || p.state.Blocks < blocks {
			p.step(t)
		}
		more := newPlay(100).nodes
		p.nodes = append(p.nodes, more[4:]...)
		if code == Price {
			p.harm = 30
		}
		if v := p.until(t, code, 24*time.Hour); v.Nodes != 2 {
			t.Errorf("the verdict is %+v, want that two nodes took part", v)
		}
	}
}

// TestAProcessThatEndsLosesNoMoreThanABlock ends the process at random times.
func TestAProcessThatEndsLosesNoMoreThanABlock(t *testing.T) {
	for _, every := range []int{150, 37, 400} {
		p := newPlay(20)
		for i := range 60 * 96 {
			p.step(t)
			if p.state.Phase == Done {
				break
			}
			if p.rnd.IntN(every) == 0 {
				before, blocks := p.on(), p.state.Blocks
				p.restart(t)
				p.step(t)
				if p.state.Phase == Compares && p.state.Blocks < blocks && p.state.Stage == 0 || p.on() > before+len(p.state.Pairs) {
					t.Fatalf("step %d: the restart changes what was found", i)
				}
			}
		}
		if every > 100 && p.state.Phase != Done {
			t.Errorf("restarts each %d minutes: still in stage %d after four days", every, p.state.Stage)
		}
		if p.state.Phase == Back {
			t.Errorf("restarts each %d minutes: it went back: %+v", every, p.state.Verdicts)
		}
	}
}

// TestNothingIsKnownOfAnEpochThatNobodyWatched loses the process in the middle of an
// epoch for a long time, and then in the second epoch: the block does not count.
func TestNothingIsKnownOfAnEpochThatNobodyWatched(t *testing.T) {
	p := newPlay(4)
	for p.state.Drawn == 0 || p.state.Half == 0 {
		p.step(t)
	}
	drawn := p.state.Drawn
	p.at = p.at.Add(2 * time.Hour)
	p.step(t)
	if p.state.Drawn != drawn+1 || p.state.Blocks != 0 {
		t.Errorf("%d blocks of %d count", p.state.Blocks, p.state.Drawn)
	}
	for p.state.Half == 0 {
		p.step(t)
	}
	p.restart(t)
	p.step(t)
	if p.state.Drawn != drawn+2 || p.state.Half != 0 {
		t.Error("the second epoch goes on although nobody knows the first one")
	}
}

// TestANodeThatIsNotWhatItShouldBeDoesNotCount has a node that never takes up that it is
// on, one with an old report, and one whose agent starts again and again.
func TestANodeThatIsNotWhatItShouldBeDoesNotCount(t *testing.T) {
	for name, spoil := range map[string]func(n *Node, i int){
		"stays off":   func(n *Node, _ int) { n.On = false },
		"stale":       func(n *Node, _ int) { n.Fresh = false },
		"starts anew": func(n *Node, i int) { n.Run = fmt.Sprint(i / 10) },
		"counts anew": func(n *Node, _ int) { n.Waits = nil },
	} {
		p := newPlay(2)
		for i := range 60 * 12 {
			if p.step(t); p.state.Drawn > 0 {
				spoil(&p.nodes[0], i)
			}
		}
		if p.state.Blocks > 0 || p.state.Phase != Compares || p.state.Drawn == 0 {
			t.Errorf("%s: %d blocks of %d count, in phase %s", name, p.state.Blocks, p.state.Drawn, p.state.Phase)
		}
	}
}

// TestNodesWithoutServicesStayOff has four nodes, of which one has a service. Nothing would
// be seen of what batch work does there.
func TestNodesWithoutServicesStayOff(t *testing.T) {
	nodes := newPlay(4).nodes
	for i := range nodes[1:] {
		nodes[1+i].Waits = nil
	}
	var s State
	var b Block
	for m := range 60 * 8 {
		s, b, _ = Step(plain, s, b, nodes, begin.Add(time.Duration(m)*time.Minute), 7)
		for _, n := range nodes {
			if s.IsOn(n.Name) {
				t.Fatalf("%s is on", n.Name)
			}
		}
	}
	if s.Drawn != 0 || s.Check() != nil {
		t.Errorf("a block begins with one node: %+v", s)
	}
}

// TestTooFewNodesWait has one node, and then a second one.
func TestTooFewNodesWait(t *testing.T) {
	p := newPlay(1)
	for range 120 {
		p.step(t)
	}
	if p.on() != 0 {
		t.Error("the only node is on")
	}
	p.nodes = append(p.nodes, newPlay(2).nodes[1])
	p.until(t, Finishes, 48*time.Hour)
}

// TestAllLooksShareOneError adds up what the looks spend.
func TestAllLooksShareOneError(t *testing.T) {
	sum := 0.0
	for k := 1; k < 10000; k++ {
		sum += spends(k)
	}
	if sum > wrong || sum < 0.99*wrong {
		t.Errorf("all looks spend %v of %v", sum, wrong)
	}
	for k, want := range []int{3, 5, 8, 12, 18, 27, 41} {
		if got := lookAt(k + 1); got != want {
			t.Errorf("look %d is after %d blocks, want %d", k+1, got, want)
		}
	}
}

// TestAStateThatCannotBeIsRefused damages a state in many ways.
func TestAStateThatCannotBeIsRefused(t *testing.T) {
	p := newPlay(20)
	p.until(t, Advances, 24*time.Hour)
	for p.state.Half == 0 || p.state.Blocks == 0 {
		p.step(t)
	}
	if err := (State{}).Check(); err != nil {
		t.Errorf("a rollout that has not begun: %v", err)
	}
	for i, whole := 0, reflect.ValueOf(p.state); i < whole.NumField(); i++ {
		var one State
		if reflect.ValueOf(&one).Elem().Field(i).Set(whole.Field(i)); !whole.Field(i).IsZero() && one.Check() == nil {
			t.Errorf("%s alone is a rollout that has not begun", whole.Type().Field(i).Name)
		}
	}
	if err := (State{Stage: -5}).Check(); err == nil {
		t.Error("a stage without a phase is a rollout that has not begun")
	}
	for name, damage := range map[string]func(s *State){
		"a phase":        func(s *State) { s.Phase = "x" },
		"a stage":        func(s *State) { s.Stage = 3 },
		"no stage":       func(s *State) { s.Stage = -1 },
		"a half":         func(s *State) { s.Half = 2 },
		"a node twice":   func(s *State) { s.Pairs[0][1] = s.Pairs[0][0] },
		"no name":        func(s *State) { s.Pairs[0][1] = "" },
		"no margin":      func(s *State) { s.Config.Margin = 0 },
		"no epoch":       func(s *State) { s.Config.Epoch = 0 },
		"falling stages": func(s *State) { s.Config.Shares = []unit.Percent{25, 5} },
		"no values":      func(s *State) { s.Logs = nil },
		"a value":        func(s *State) { s.Logs = []float64{1e6} },
		"blocks":         func(s *State) { s.Drawn = 0 },
		"looks":          func(s *State) { s.Looks = 9 },
		"no look":        func(s *State) { s.Blocks, s.Logs, s.Looks = 5, make([]float64, 5), 0; s.Drawn = 99 },
		"an end":         func(s *State) { s.Phase, s.Pairs = Done, nil },
		"time":           func(s *State) { s.Since = s.Begun.Add(-1) },
		"no swap":        func(s *State) { s.Swapped = time.Time{} },
		"waits":          func(s *State) { s.Services = map[string]Ledger{"a": {OffFor: -1}} },
		"no begin":       func(s *State) { s.Verdicts = nil },
	} {
		text, err := json.Marshal(p.state)
		if err != nil {
			t.Fatal(err)
		}
		var s State
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if damage(&s); s.Check() == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

// TestAQuietServiceEndsNothing has a service on one node that hardly waits: now and then,
// for microseconds, and more often and longer while the node is on.
func TestAQuietServiceEndsNothing(t *testing.T) {
	for scale, longer := range map[int64]time.Duration{1: 100 * time.Microsecond, 30: 20 * time.Microsecond} {
		p := newPlay(4)
		for p.state.Phase != Done {
			c := p.nodes[0].Waits["shop/quiet-0"]
			more := switchback.Count{Waits: scale, Waited: time.Duration(scale) * 5 * time.Microsecond}
			if p.nodes[0].On {
				more = switchback.Count{Waits: 10 * scale, Waited: time.Duration(10*scale) * longer}
			}
			p.nodes[0].Waits["shop/quiet-0"] = c.Plus(more)
			p.step(t)
			if p.state.Phase == Back || p.at.Sub(begin) > 96*time.Hour {
				t.Fatalf("%d waits a minute: %+v", scale, p.state.Verdicts[len(p.state.Verdicts)-1])
			}
		}
	}
}

// TestNodesThatDifferEndNothing has nodes of which one waits a hundred times as long as
// others, and a process that ends often: what is usual on a node is not known then, and
// what others wait says nothing.
func TestNodesThatDifferEndNothing(t *testing.T) {
	p := newPlay(4)
	p.base = []float64{1, 1, 1, 100}
	for i := range 60 * 48 {
		p.step(t)
		if i%50 == 0 {
			p.restart(t)
		}
		if p.state.Phase == Back {
			t.Fatalf("it went back after %v: %+v", p.at.Sub(begin), p.state.Verdicts[len(p.state.Verdicts)-1])
		}
	}
}

// TestAnOldRolloutMaySpendNoMore has a rollout that began ten days ago, and a large harm.
func TestAnOldRolloutMaySpendNoMore(t *testing.T) {
	p := newPlay(4)
	p.step(t)
	p.state.Begun = begin.Add(-240 * time.Hour)
	p.state.Verdicts[0].At = p.state.Begun
	p.harm = 30
	if v := p.until(t, Price, time.Hour); v.Spent > 1 {
		t.Errorf("it went back after %+v", v)
	}
	l := Ledger{More: time.Hour, MoreAt: begin}
	for after, want := range map[time.Duration]float64{0: 1, -time.Hour: 1, 24 * time.Hour: 1 / math.E, 240 * time.Hour: 0} {
		if got := l.moreAt(begin.Add(after)).Hours(); math.Abs(got-want) > 1e-3 {
			t.Errorf("%v of an hour are left after %v, want %v", got, after, want)
		}
	}
}

// TestWhatWasSpentIsKeptWithoutTheBlock ends the process in the second epoch, so that the
// block does not count. What services waited longer in the first one does.
func TestWhatWasSpentIsKeptWithoutTheBlock(t *testing.T) {
	p := newPlay(40)
	p.harm = 10
	for p.state.Drawn == 0 || p.state.Half == 0 {
		p.step(t)
	}
	p.restart(t)
	p.step(t)
	if l := p.state.Services["shop/web"]; p.state.Drawn != 2 || p.state.Blocks != 0 || l.More < 10*time.Second || l.On.Waits != 0 {
		t.Errorf("block %d, %d count, %+v", p.state.Drawn, p.state.Blocks, l)
	}
}

// TestNodesWithoutBatchWorkDoNotCount has a node on which no pod requests batch resources
// while it is on, and both.
func TestNodesWithoutBatchWorkDoNotCount(t *testing.T) {
	for _, without := range []int{1, 2} {
		p := newPlay(2)
		for i := range without {
			p.nodes[i].Batch = false
		}
		for range 60 * 12 {
			p.step(t)
		}
		if p.state.Blocks > 0 || p.state.Phase != Compares || p.state.Drawn < 5 {
			t.Errorf("%d nodes without: %d blocks of %d count, in phase %s", without, p.state.Blocks, p.state.Drawn, p.state.Phase)
		}
	}
}

// TestAStateHasABound has a block of many pairs, and a stage that stays undecided.
func TestAStateHasABound(t *testing.T) {
	many := make([]float64, 1234)
	sum := 0.0
	for i := range many {
		many[i] = float64(i%7) / 7
		sum += many[i]
	}
	got := grouped(many)
	mean := 0.0
	for _, v := range got {
		mean += v / maxLogs
	}
	if len(got) != maxLogs || math.Abs(mean-sum/1234) > 0.01 {
		t.Errorf("%d values with the mean %v, want %v", len(got), mean, sum/1234)
	}
	p := newPlay(4)
	p.step(t)
	s := p.state
	s.Looks, s.Blocks, s.Drawn = maxLooks-1, lookAt(maxLooks), lookAt(maxLooks)
	for i := range s.Blocks {
		s.Logs = append(s.Logs, float64(i%2*10-5))
	}
	s = s.look(4, p.at)
	if v := s.Verdicts[len(s.Verdicts)-1]; s.Phase != Back || v.Code != GivesUp || s.Check() != nil {
		t.Errorf("the last look is %+v, and then %s: %v", v, s.Phase, s.Check())
	}
}
