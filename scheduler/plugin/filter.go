package plugin

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

const stateKey fwk.StateKey = Name

// skip is the status that makes the framework skip the plugin. All pods can
// share it, because the framework does not change it.
var skip = fwk.NewStatus(fwk.Skip)

// A cycle is one attempt to schedule a pod that demands CPUs.
type cycle struct {
	pod     place.Pod
	answers *answers // the answers of the nodes to the demand of the pod
	failed  *waiter
	// trials are changed copies of nodes. A preemption removes pods from a node.
	// The framework also adds pods that are nominated for a node.
	trials map[string]*trial
	// back contains, by node, the pods that the preemption of a PodGroup has put
	// back into the scheduler's list.
	back map[string][]place.Pod
	// contract is the choice of Reserve. sent means that the plugin has sent a
	// bind that may have succeeded.
	contract place.Contract
	sent     bool
	// nodes are the nodes that Score rates. rated are the answers of these nodes.
	nodes []fwk.NodeInfo
	rated []place.Answer
}

// A waiter adds the pod of a cycle to the waiting pods. All copies of the cycle
// share one waiter, so that the pod is added only once. doubts are the nodes on
// which the pod may already hold CPUs, because it is not known whether a bind
// has succeeded. Such CPUs are no reason to refuse this pod.
type waiter struct {
	sync.Once
	doubts []string
}

// Clone implements fwk.StateData. Each node that a preemption considers gets
// its own clone.
func (c *cycle) Clone() fwk.StateData {
	next := *c
	if c.trials != nil {
		next.trials = make(map[string]*trial, len(c.trials))
		for node, t := range c.trials {
			copied := *t
			copied.less, copied.more = slices.Clone(t.less), slices.Clone(t.more)
			next.trials[node] = &copied
		}
	}
	if c.back != nil {
		next.back = make(map[string][]place.Pod, len(c.back))
		for node, pods := range c.back {
			next.back[node] = slices.Clone(pods)
		}
	}
	return &next
}

// A currentCycle is the cycle that began last. Filter and Score read it here,
// so that they need not search in the state of the cycle.
type currentCycle struct {
	state fwk.CycleState
	cycle *cycle
}

// cycle returns the cycle of a pod. It returns nil if the pod demands no CPUs.
func (p *Plugin) cycle(state fwk.CycleState) *cycle {
	if now := p.now.Load(); now != nil && now.state == state {
		return now.cycle
	}
	return cycleOf(state)
}

func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// PreFilter reads the demand of the pod. If the pod demands no CPUs, the
// framework skips Filter and the two functions for preemption. This is correct:
// a pod that owns CPUs requests the same number of CPUs, so the plugin
// NodeResourcesFit counts correctly for all other pods. The framework also
// skips these functions if the demand fits on all nodes. It does not skip them
// for a member of a PodGroup: a preemption puts pods back that the ledger may
// not know (viewWithBack).
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	demand, asks := demandOf(pod)
	if !asks {
		return nil, skip
	}
	if err := p.keeper.awaitReady(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	if !state.IsPodGroupSchedulingCycle() { // a PodGroup may have lists of its own
		p.keeper.views.Load().follow(nodes)
	}
	c := &cycle{
		pod: place.Pod{UID: place.UID(pod.UID), Request: demand}, answers: p.keeper.views.Load().answersTo(&demand), failed: &waiter{},
	}
	state.Write(stateKey, c)
	p.now.Store(&currentCycle{state, c})
	if !state.IsPodGroupSchedulingCycle() && p.keeper.fitsEverywhere(c, len(nodes)) {
		return nil, skip
	}
	return nil, nil
}

// Filter reports whether a node has the CPUs that the pod demands. If so, and
// outside of preemptions, Filter allocates no memory.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	c := p.cycle(state)
	if c == nil {
		return nil
	}
	if len(c.trials) > 0 {
		if t := c.trials[node.Node().Name]; t != nil {
			return refusal(t.view.Room(&c.pod.Request))
		}
	}
	if len(c.back) > 0 {
		if back := c.back[node.Node().Name]; len(back) > 0 {
			view, why := p.keeper.viewWithBack(node, c.pod.UID, back)
			if why != cpus.Fits {
				return refusal(why)
			}
			return refusal(view.Room(&c.pod.Request))
		}
	}
	answer := p.keeper.answer(c, node.Node())
	if answer.Fits() {
		return nil
	}
	// The pod waits from now on. The keeper does not wake it for CPUs that were
	// freed before.
	c.failed.Do(func() { c.failed.doubts = p.keeper.addWaiting(pod, c.pod.Request, answer.Code()) })
	name := node.Node().Name
	ended, doubtful := pod.Status.NominatedNodeName == name || state.IsPodGroupSchedulingCycle(), slices.Contains(c.failed.doubts, name)
	if !ended && !doubtful {
		return refusal(p.keeper.answer(c, node.Node()).Code())
	}
	view := p.keeper.view(name)
	if ended {
		view = p.keeper.viewWithoutEnded(node)
	}
	if doubtful {
		view = view.Without(c.pod.UID)
	}
	return refusal(view.Room(&c.pod.Request))
}

// refusal returns a status for a reason. It makes a new status each time, because
// the framework writes the name of the plugin into the status.
//
// The reason is a constant without the numbers of the node. The message of the
// pod says how many nodes have the same reason. With numbers, each node would have
// another reason, and the message would change with each attempt. A constant
// also saves the building of texts for thousands of nodes. kubectl tenon explain
// pod prints the numbers of each node (place.View.Explain).
func refusal(why cpus.Code) *fwk.Status {
	switch why {
	case cpus.Fits:
		return nil
	case cpus.NoReport, cpus.Stale, cpus.OtherManager, cpus.NoDemand, cpus.NotWhole:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why.Text()) // a preemption does not help
	}
	return fwk.NewStatus(fwk.Unschedulable, why.Text())
}

// PreScore asks all nodes for their answers at once. Score would ask them one by
// one, after other plugins, which push the answers out of the caches of the
// processor. PreScore makes the framework skip Score if the pod demands no CPUs,
// or if all nodes have the same rating. In the second case, Score would not
// change the order of the nodes.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	c := p.cycle(state)
	if c == nil {
		return skip
	}
	c.nodes, c.rated = nodes, p.keeper.answers(c, nodes)
	for _, answer := range c.rated {
		if rating(answer) != rating(c.rated[0]) {
			return nil
		}
	}
	return skip
}

// rating returns the rating of a node, from 0 to 100. It is 0 if the node has
// lost the CPUs since Filter, or if pods that have ended still hold CPUs.
func rating(a place.Answer) int64 {
	if a.Fits() {
		return a.Worth()
	}
	return 0
}

// Score leaves the rating to NormalizeScore.
func (*Plugin) Score(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore rates all nodes.
func (p *Plugin) NormalizeScore(_ context.Context, state fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	c := p.cycle(state)
	if c == nil {
		return nil
	}
	inOrder := c.inOrder(scores)
	for i := range scores {
		if inOrder {
			scores[i].Score = rating(c.rated[i])
		} else {
			scores[i].Score = rating(p.keeper.view(scores[i].Name).Answer(&c.pod.Request))
		}
	}
	return nil
}

// inOrder reports whether the scores are in the order of the nodes of PreScore,
// which the framework keeps. inOrder compares only the first and the last name,
// because the names are spread over the memory. A score may have no name: the
// node was scored for an earlier pod of a batch, and PreScore made the framework
// skip Score for that pod.
func (c *cycle) inOrder(scores fwk.NodeScoreList) bool {
	if len(c.nodes) != len(scores) {
		return false
	}
	is := func(i int) bool { return scores[i].Name == "" || scores[i].Name == c.nodes[i].Node().Name }
	return len(scores) == 0 || is(0) && is(len(scores)-1)
}
