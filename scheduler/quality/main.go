// Command quality compares Tenon and its rivals: how well they place pods that
// demand CPUs. The rivals are the static policy of the kubelet's CPU manager,
// the order of Koordinator's scheduler, plain best fit, and best fit with a
// term for fragmentation.
//
//	go run ./quality -part churn -out blocks.csv
//	go run ./quality -report blocks.csv
//
// Part single places single claims on machines in random states, and compares
// each result with the optimum. Part sequences places eight claims one after
// the other. It compares the result with the best possible one if all claims
// are known from the start. Part churn starts and ends pods on a cluster, for
// each kind of node. Each block has its own random numbers, and all rivals get
// the same claims. The speed of the machine has no effect.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// options are the values of the flags.
type options struct {
	part                          string
	kinds, rivals                 []string
	loads, pools                  []int // in percent
	blocks, from, nodes, arrivals int
	tries                         int
	out                           string
	report                        string
}

func parse(args []string) (options, error) {
	f := flag.NewFlagSet("quality", flag.ContinueOnError)
	o := options{}
	var names []string
	for _, m := range makers {
		names = append(names, m.name)
	}
	f.StringVar(&o.part, "part", "churn", "single, sequences or churn")
	machines := f.String("kinds", "intel,amd,arm", "the kinds of nodes")
	rivals := f.String("rivals", strings.Join(names, ","), "who places the pods")
	loads := f.String("loads", "50,80,95", "the demand for CPUs, in percent of the cluster")
	pools := f.String("pools", "0", "the shares of pods without CPUs of their own, in percent")
	f.IntVar(&o.blocks, "blocks", 20, "the number of blocks")
	f.IntVar(&o.from, "from", 0, "the number of the first block")
	f.IntVar(&o.nodes, "nodes", 200, "the nodes of a cluster")
	f.IntVar(&o.arrivals, "arrivals", 5600, "the pods that arrive in a block of churn; the first two fifths are not counted")
	f.IntVar(&o.tries, "tries", 500, "the claims, or the sequences, of a block of the other parts")
	f.StringVar(&o.out, "out", "", "the file to which the blocks are added; empty: standard output")
	f.StringVar(&o.report, "report", "", "print the comparison of the blocks in this file, and measure nothing")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.kinds, o.rivals = strings.Split(*machines, ","), strings.Split(*rivals, ",")
	for _, name := range o.rivals {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("-rivals: %q: want some of %s", name, strings.Join(names, ","))
		}
	}
	for _, name := range o.kinds {
		if !slices.ContainsFunc(kinds, func(h hardware) bool { return h.name == name }) {
			return o, fmt.Errorf("-kinds: %q: want some of intel,amd,arm", name)
		}
	}
	var err error
	if o.loads, err = percents("-loads", *loads, 1); err != nil {
		return o, err
	}
	if o.pools, err = percents("-pools", *pools, 0); err != nil {
		return o, err
	}
	if o.blocks < 1 || o.from < 0 || o.nodes < 1 || o.arrivals < 5 || o.tries < 1 {
		return o, errors.New("-blocks, -nodes and -tries: want at least 1; -arrivals: want at least 5; -from: want at least 0")
	}
	if o.part != "churn" && o.part != "single" && o.part != "sequences" {
		return o, fmt.Errorf("-part: %q: want churn, single or sequences", o.part)
	}
	return o, nil
}

func percents(flag, text string, least int) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < least || n > 100 {
			return nil, fmt.Errorf("%s: %q: want percent from %d to 100, such as 50,80", flag, text, least)
		}
		all = append(all, n)
	}
	return all, nil
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		err = do(o)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

func do(o options) error {
	if o.report != "" {
		text, err := os.ReadFile(o.report)
		if err != nil {
			return err
		}
		all, err := read(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", o.report, err)
		}
		fmt.Print(summary(all))
		return nil
	}
	out := os.Stdout
	if o.out != "" {
		f, err := os.OpenFile(o.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}
	return measure(o, func(r row) error {
		_, err := fmt.Fprintln(out, r)
		return err
	})
}

// measure runs the blocks of a part, and calls tell with each figure.
func measure(o options, tell func(row) error) error {
	machines := kinds
	if o.part == "sequences" {
		machines = []hardware{smallMachine}
	}
	for _, h := range machines {
		if o.part != "sequences" && !slices.Contains(o.kinds, h.name) {
			continue
		}
		f := newFrame(h)
		for _, m := range makers {
			if !slices.Contains(o.rivals, m.name) {
				continue
			}
			for block := o.from; block < o.from+o.blocks; block++ {
				rows, err := measureBlock(o, f, m, block)
				if err != nil {
					return fmt.Errorf("%s, %s, block %d: %w", h.name, m.name, block, err)
				}
				for _, r := range rows {
					if err := tell(r); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func measureBlock(o options, f *frame, m maker, block int) ([]row, error) {
	var rows []row
	add := func(load, pools int, of map[string]float64) {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			rows = append(rows, row{o.part, f.name, load, pools, m.name, block, name, of[name]})
		}
	}
	switch o.part {
	case "single":
		s, err := placeSingle(f, m, o.tries, uint64(block))
		if err != nil {
			return nil, err
		}
		add(0, 0, map[string]float64{"nodes": s.nodes, "nodes+caches": s.caches, "nodes+caches+cores": s.split, "all+left": s.left})
	case "sequences":
		s, err := sequences(f, m, o.tries, uint64(block))
		if err != nil {
			return nil, err
		}
		add(0, 0, map[string]float64{"one-cache": s})
	default:
		for _, load := range o.loads {
			for _, pools := range o.pools {
				t := trace{load: float64(load) / 100, pools: float64(pools) / 100, arrivals: o.arrivals, warm: o.arrivals * 2 / 5, seed: uint64(block)}
				x, err := run(f, o.nodes, m, t)
				if err != nil {
					return nil, fmt.Errorf("load %d %%, pools %d %%: %w", load, pools, err)
				}
				add(load, pools, map[string]float64{
					"one-cache": x.oneCache, "one-node": x.oneNode, "split": x.split, "waited": x.waited, "stranded": x.stranded, "refused": x.refused,
				})
			}
		}
	}
	return rows, nil
}
