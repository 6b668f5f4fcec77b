package config

import (
	"errors"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/rollout"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// LabelRollout is a label of a node. While there is a rollout, the manager writes RolloutOn
// or RolloutOff, and batch work is off on each selected node that is not on. The owner of
// a node writes RolloutNever: batch work is off there at any time, and the manager leaves
// the node alone.
const (
	LabelRollout = "tenon.sh/rollout"
	RolloutOn    = "on"
	RolloutOff   = "off"
	RolloutNever = "never"
)

// Rollout is rollout-config: batch work comes to more and more nodes, while the services
// do not wait longer for it. It has no entries for some nodes.
type Rollout struct {
	Enable   node.Maybe[bool] `json:"enable,omitzero"`
	Selector Selector         `json:"nodeSelector,omitzero"`
	// MarginPercent is by how much longer services may wait. It has no default.
	MarginPercent node.Maybe[unit.Percent] `json:"marginPercent,omitzero" range:"1..100"`
	// StagePercents are the shares of the nodes that take part in each stage.
	StagePercents []node.Maybe[unit.Percent] `json:"stagePercents,omitempty"`
	// EpochMinutes is the time after which nodes swap.
	EpochMinutes node.Maybe[int64] `json:"epochMinutes,omitzero" range:"18..1440"`
	// Attempt begins another rollout when it changes.
	Attempt node.Maybe[int64] `json:"attempt,omitzero" range:"0.."`
}

// These apply where rollout-config does not say otherwise.
const defaultEpochMinutes = 30

var defaultStages = []unit.Percent{5, 25, 100}

// Rules returns what is asked for.
func (r Rollout) Rules() rollout.Config {
	c := rollout.Config{
		Margin: r.MarginPercent.Or(0), Attempt: r.Attempt.Or(0),
		Epoch: time.Duration(r.EpochMinutes.Or(defaultEpochMinutes)) * time.Minute,
	}
	for _, share := range r.StagePercents {
		c.Shares = append(c.Shares, share.Or(0))
	}
	if len(c.Shares) == 0 {
		c.Shares = defaultStages
	}
	return c
}

func (r Rollout) faults() []Fault {
	if !r.Enable.Or(false) {
		return nil
	}
	c := checker{bad: map[string]bool{}}
	c.checkSelector(r.Selector, keyRollout+".nodeSelector")
	_, own := r.Selector.Labels[LabelRollout]
	if own || slices.ContainsFunc(r.Selector.Expressions, func(e Requirement) bool { return valueOf(e.Key) == LabelRollout }) {
		c.fault(keyRollout+".nodeSelector", "it selects by the label "+LabelRollout+", which the rollout itself writes: want another label")
	}
	c.need(keyRollout+".marginPercent", r.MarginPercent.Known(), "by how many percent longer services may wait: the owner of the services says so")
	switch err := r.Rules().Check(); {
	case errors.Is(err, rollout.ErrStages):
		c.fault(keyRollout+".stagePercents", err.Error()+": want ascending numbers from 1 to 100")
	case err != nil && r.MarginPercent.Known():
		c.fault(keyRollout, err.Error())
	}
	return c.faults
}

// Rollout returns the rollout, or false if there is none. Without colocation there is no
// batch work to compare with, and no rollout.
func (c Cluster) Rollout() (Rollout, bool) {
	return c.rollout.all, c.rollout.all.Enable.Or(false) && c.Colocates()
}

// LacksRollout reports whether it is not known whether there is a rollout: rollout-config
// has a fault and no former content was known, or there is no ConfigMap. The same holds
// for colocation-config if there is a rollout-config.
func (c Cluster) LacksRollout() bool { return c.texts == nil || c.rolloutUnread }

// IsOff reports whether batch work is off on a node with these labels. While it is not
// known whether there is a rollout, it is off only where one has turned it off.
func (c Cluster) IsOff(labels map[string]string) bool {
	switch labels[LabelRollout] {
	case RolloutNever:
		return true
	case RolloutOn:
		return false
	}
	r, enabled := c.Rollout()
	return c.rolloutUnread && labels[LabelRollout] == RolloutOff || enabled && r.Selector.Selects(labels)
}

// turnOff lets no more batch work come to the node, and leaves that which is there a
// hundredth of a CPU. It evicts none for want of CPU. Amounts that pods request stay
// published, so that a kubelet that restarts admits them.
func (n *NodeConfig) turnOff() {
	n.Policy.Overcommit.CPU.LimitPercent, n.Policy.Overcommit.Memory.LimitPercent = node.Some(unit.Percent(0)), node.Some(unit.Percent(0))
	n.Policy.Suppress = suppress.Config{Enable: true, Policy: suppress.ByQuota} // a set would leave it whole CPUs
	n.Policy.Evict.CPU = evict.CPUConfig{}
	n.Chosen = append(n.Chosen, "label "+LabelRollout)
}
