package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/stat"
)

// requiredShare is the part of kube-scheduler's throughput that the plugin must
// keep. The throughput is by CPU time.
const requiredShare = 0.95

// table returns the blocks as CSV, in microseconds and bytes for each pod.
func table(all []block) string {
	var b strings.Builder
	b.WriteString("nodes,share,round,scheduler,cpu_us,wall_us,bytes\n")
	for _, x := range all {
		fmt.Fprintf(&b, "%d,%d,%d,%s,%.2f,%.2f,%.0f\n", x.nodes, x.share, x.round, x.arm, float64(x.cpu.Nanoseconds())/1e3, float64(x.wall.Nanoseconds())/1e3, x.bytes)
	}
	return b.String()
}

// summary compares the plugin with kube-scheduler. The throughput is the
// inverse of the CPU time for each pod.
func summary(o options, all []block) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODES\tASKING\tSTOCK\tPLUGIN\tMORE\tTHROUGHPUT\tOF EQUALS\tOF AN EMPTY PLUGIN\tOF AN EMPTY SCORE\tVERDICT\tSTOCK\tPLUGIN")
	shares := slices.Sorted(slices.Values(o.shares))
	for _, nodes := range o.nodes {
		for _, share := range shares {
			of, bytes := map[string]stat.Sample{}, map[string]stat.Sample{}
			for _, name := range names {
				of[name], bytes[name] = stat.Sample{}, stat.Sample{}
			}
			for _, x := range all {
				if x.nodes == nodes && x.share == share {
					of[x.arm][x.round], bytes[x.arm][x.round] = float64(x.cpu.Nanoseconds())/1e3, x.bytes
				}
			}
			ratio, equal := stat.Ratio(of[stock], of[withPlugin], rule(o.rounds)), stat.Ratio(of[stock], of[stockAgain], rule(o.rounds))
			empty, score := stat.Ratio(of[stock], of[withEmpty], rule(o.rounds)), stat.Ratio(of[stock], of[withScore], rule(o.rounds))
			more := stat.Difference(of[withPlugin], of[stock], rule(o.rounds))
			fmt.Fprintf(w, "%d\t%d %%\t%.0f µs\t%.0f µs\t%.0f µs (%.0f to %.0f)\t%.3f (%.3f to %.3f)\t%.3f (%.3f to %.3f)\t%.3f (%.3f to %.3f)\t%.3f (%.3f to %.3f)\t%s\t%.0f kB\t%.0f kB\n",
				nodes, share, stat.Describe(of[stock]).Value, stat.Describe(of[withPlugin]).Value, more.Value, more.Low, more.High,
				ratio.Value, ratio.Low, ratio.High, equal.Value, equal.Low, equal.High, empty.Value, empty.Low, empty.High, score.Value, score.Low, score.High, verdict(ratio, equal),
				stat.Describe(bytes[stock]).Value/1e3, stat.Describe(bytes[withPlugin]).Value/1e3)
		}
	}
	w.Flush() // writes to memory and cannot fail
	fmt.Fprintf(&b, "CPU time for each pod; throughput is stock / plugin, with the 95 %% interval over %d rounds of %d pods;\nof equals: stock / stock again; of an empty plugin: stock / a plugin that filters and scores the same pods and does nothing; of an empty score: one that only scores;\nthe last two columns are the memory allocated for each pod.\n", o.rounds, o.pods)
	return b.String()
}

// rule returns the statistical rule of the lab for a number of rounds that was
// fixed before the measurement.
func rule(rounds int) paired.Rule { return paired.Blocks().Planned(rounds) }

// equalsMargin is the ratio from which two equal schedulers count as different.
const equalsMargin = 1.03

// verdict tells whether the plugin keeps the throughput, by the bounds that the
// lab uses for its claims. If the two equal schedulers do not resolve equalsMargin,
// it is not known.
func verdict(ratio, equal stat.Estimate) string {
	switch v := stat.AtLeast(ratio, requiredShare); {
	case !ratio.Enough:
		return "undecided: too few rounds"
	case !stat.ResolutionOf(equal, equalsMargin).Fine:
		return "undecided: equals differ"
	case v == stat.Met:
		return fmt.Sprintf("at least %.2f", requiredShare)
	case v == stat.NotMet:
		return fmt.Sprintf("below %.2f", requiredShare)
	}
	return "undecided"
}
