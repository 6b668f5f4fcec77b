package rollout

import (
	"maps"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/trials/paired"
)

// wrong is the probability with which a stage ends although services wait as long as the
// stage allows, or the rollout goes back although they do not wait longer than the
// margin: over all looks of a stage.
const wrong = 0.05

// lookAt returns the number of blocks of a stage at which it is judged for the k-th time:
// after 3, 5, 8, 12, 18, 27 … blocks.
func lookAt(k int) int {
	n := 3
	for range k - 1 {
		n = (3*n + 1) / 2
	}
	return n
}

// maxLooks is the number of looks of a stage. The last one is after 315 blocks, which are
// 13 days with epochs of half an hour.
const maxLooks = 12

// spends returns the part of wrong that the k-th look spends. All parts together are
// wrong, however many looks there are: so a stage may go on for as long as it needs.
func spends(k int) float64 { return wrong / float64(k*(k+1)) }

// leastLogs is the least number of pairs of a verdict.
const leastLogs = 3

// look judges the blocks of the stage.
func (s State) look(nodes int, now time.Time) State {
	s.Looks++
	alpha, margin := spends(s.Looks), 1+float64(s.Config.Margin)/100
	b := paired.BoundsOf(s.Logs, alpha)
	v := Verdict{
		At: now, Code: Waits, Stage: s.Stage, Share: s.Config.Shares[s.Stage], Blocks: s.Blocks, Logs: len(s.Logs), Nodes: 2 * len(s.Pairs),
		Ratio: math.Exp(b.Mean), Total: total(s.Services), Allowed: s.Config.allowed(s.Stage, nodes), Noise: deviation(s.Logs, b.Mean),
	}
	if lower, upper := math.Exp(b.MeanLower), math.Exp(b.MeanUpper); len(s.Logs) >= leastLogs && upper < math.MaxFloat32 {
		v.Lower, v.Upper = lower, upper
	}
	known := v.Upper > 0
	next := s.Config.next(s.Stage, nodes)
	last := next == len(s.Config.Shares)
	switch {
	case known && v.Lower > margin:
		v.Code = Harm
		return s.end(Back, v)
	case known && v.Upper < v.Allowed && last && v.Total < v.Allowed:
		v.Code = Finishes
		return s.end(Done, v)
	case known && v.Upper < v.Allowed && !last:
		v.Code = Advances
		s.Stage, s.Since, s.Logs, s.Blocks, s.Looks = next, now, nil, 0, 0
	case s.Looks >= maxLooks:
		v.Code = GivesUp
		return s.end(Back, v)
	default:
		v.Next = time.Duration(lookAt(s.Looks+1)-s.Blocks) * 2 * s.Config.Epoch
		v.Decides = s.decides(v)
	}
	s.Verdicts = append(slices.Clone(s.Verdicts), v)
	return s
}

// decides returns the time to the look that ends the stage, if the values scatter around
// the present mean as until now. A bound that is as wide as then expected ends it.
func (s State) decides(v Verdict) time.Duration {
	for k := s.Looks + 1; k <= maxLooks; k++ {
		n := float64(len(s.Logs)) / float64(s.Blocks) * float64(lookAt(k))
		reach := paired.Reach(int(n), spends(k)) * v.Noise / math.Sqrt(n)
		if math.Log(v.Ratio)+reach < math.Log(v.Allowed) {
			return time.Duration(lookAt(k)-s.Blocks) * 2 * s.Config.Epoch
		}
	}
	return 0
}

// total returns the ratio of the mean waits in all epochs, each service with the same
// number of waits on both sides.
func total(services map[string]Ledger) float64 {
	var on, off float64
	for _, name := range slices.Sorted(maps.Keys(services)) { // sums of floats depend on their order
		l := services[name]
		if l.On.Waits > 0 && l.Off.Waits > 0 {
			weight := float64(l.On.Waits + l.Off.Waits)
			on, off = on+weight*l.On.Mean(), off+weight*l.Off.Mean()
		}
	}
	if off == 0 {
		return 0
	}
	return on / off
}

func deviation(logs []float64, mean float64) float64 {
	sum := 0.0
	for _, v := range logs {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(max(len(logs)-1, 1)))
}
