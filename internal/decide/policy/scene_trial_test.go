package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A law says how a service waits: how often a second, and how long each time.
// Each mechanism has a factor that multiplies the length.
type law struct {
	count  uint64
	length time.Duration
	factor map[node.Mechanism]float64
}

// readTrial applies the scenario lines about trials:
//
//	law ID 100*20us cpu.idle=0.7 weight=1     the waits of a service in each tick from now on, by the mechanism in use; -: none
//
// and the words of a configuration: order=measured trials=off. "---- trials"
// prints what the trials found.
func (n *scene) readTrial(t *testing.T, f []string) {
	t.Helper()
	n.laws = maps.Clone(n.laws)
	if n.laws == nil {
		n.laws = map[node.WorkloadID]law{}
	}
	id := node.WorkloadID(f[0])
	if f[1] == "-" {
		delete(n.laws, id)
		return
	}
	count, length, _ := strings.Cut(f[1], "*")
	x := law{factor: map[node.Mechanism]float64{}}
	x.count = mustParse(t, word{f[0], count}, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	x.length = mustParse(t, word{f[0], length}, time.ParseDuration)
	for _, w := range words(strings.Join(f[2:], " ")) {
		x.factor[node.Mechanism(w.key)] = mustParse(t, w, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	}
	n.laws[id] = x
}

// waitsByLaw returns the waits that the laws give for a spell. The waits differ
// a little from second to second, because their variance must not be 0.
func (n *scene) waitsByLaw(every time.Duration) []waiting {
	var all []waiting
	for _, id := range slices.Sorted(maps.Keys(n.laws)) {
		x := n.laws[id]
		f, is := x.factor[n.state.Selector.Status.Mechanism]
		if !is {
			f = 1
		}
		f *= 1 + float64(n.snap.At.Unix()%7)/100
		length := time.Duration(float64(x.length) * f)
		all = append(all, waiting{id: id, kind: "waits", counts: map[time.Duration]uint64{length: uint64(float64(x.count) * every.Seconds())}})
	}
	return all
}

// trials prints the findings of the trials.
func (n *scene) trials() []string {
	v := n.state.Selector.Trials.Shown()
	kept := string(v.Kept)
	if kept == "" {
		kept = "the floor"
	}
	lines := []string{fmt.Sprintf("in use: %s  # %s", n.state.Selector.Status.Mechanism, n.state.Selector.Status.Why), fmt.Sprintf("kept: %s  # %s", kept, v.Why)}
	for _, r := range v.Results {
		line := fmt.Sprintf("%s: %s, %d pairs", r.Candidate, r.Finding, r.Pairs)
		if r.Ratio > 0 {
			line += fmt.Sprintf(", times %.2f (%.2f to %.2f)", r.Ratio, r.Low, r.High)
		}
		lines = append(lines, line+"  # "+r.Why)
		for _, s := range r.Services {
			lines = append(lines, fmt.Sprintf("  %s: %v a wait without, %v with, in %d pairs", s.Name, s.Without.Round(100), s.With.Round(100), s.Pairs))
		}
	}
	return lines
}
