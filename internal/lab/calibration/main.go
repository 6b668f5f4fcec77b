// Calibration reads traces of machines, promises room for batch work at each hour
// from what came before it and from its first step, and prints how often such promises came true. It does
// so for the promises of package promise, and beside them for rivals: a
// percentile of history, and other adaptive quantiles.
//
// The columns of a trace are named by number, so that a trace of any source can be
// read. A node of the calibration is one machine of the trace, or a random group of
// several (-group), as virtual machines share a host.
package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"
)

type options struct {
	mapping
	threshold float64
	group     int
	groupings int
	seed      uint64
	rivals    bool
	nodes     string
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "calibration:", err)
		}
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var o options
	comma := ","
	flags := flag.NewFlagSet("calibration", flag.ContinueOnError)
	flags.StringVar(&comma, "comma", comma, "what separates the columns")
	flags.IntVar(&o.header, "header", 0, "lines at the start of each file that are no data")
	flags.IntVar(&o.time, "time", 1, "column of the time, from 1")
	flags.DurationVar(&o.unit, "unit", time.Second, "unit of the time")
	flags.IntVar(&o.machine, "machine", 0, "column of the machine; 0: files of one name are one machine")
	flags.IntVar(&o.use, "use", 0, "column of the use")
	flags.IntVar(&o.capacity, "capacity", 0, "column of the capacity, in the unit of the use; 0: all have -full")
	flags.Float64Var(&o.full, "full", 100, "capacity of each machine where no column has it")
	flags.DurationVar(&o.step, "step", 5*time.Minute, "time between two samples; the greatest use within it counts")
	flags.DurationVar(&o.hold, "hold", 15*time.Minute, "how long a sample counts if no other follows")
	flags.Float64Var(&o.threshold, "threshold", 60, "percent of the capacity that all work may use")
	flags.IntVar(&o.group, "group", 1, "machines of the trace that are one node")
	flags.IntVar(&o.groupings, "groupings", 1, "how often the machines are grouped at random")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the groupings")
	flags.BoolVar(&o.rivals, "rivals", true, "compare with rivals")
	flags.StringVar(&o.nodes, "nodes", "", "file for the figures of each node, as CSV")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || o.use < 1 || o.group < 1 || len(comma) != 1 || o.step < time.Minute || o.step%time.Minute != 0 || time.Hour%o.step != 0 {
		return errors.New("want files, -use, -group from 1, a -comma of one character, and a -step of whole minutes that divides an hour")
	}
	o.comma = comma[0]
	machines, err := read(flags.Args(), o.mapping)
	if err != nil {
		return err
	}
	total := newResult()
	random := rand.New(rand.NewPCG(o.seed, 0))
	for grouping := range o.groupings {
		if o.group > 1 {
			random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		}
		for i := 0; i+o.group <= len(machines); i += o.group {
			room := roomOf(machines[i:i+o.group], o.mapping, o.threshold)
			total.add(fmt.Sprintf("%d/%d", grouping+1, i/o.group+1), evaluate(room, int(o.step/time.Minute), o.rivals))
		}
	}
	if _, err := io.WriteString(out, total.text()); err != nil || o.nodes == "" {
		return err
	}
	return writeNodes(o.nodes, total)
}

// writeNodes writes one line for each node, rival, length and level.
func writeNodes(name string, r *result) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write the figures of the nodes: %w", err)
	}
	w := csv.NewWriter(f)
	lines := [][]string{strings.Split("node,rival,hours,percent,judged,kept,promised_of_free", ",")}
	for _, n := range r.nodes {
		lines = append(lines, []string{
			n.node, n.rival, strconv.Itoa(n.hours), strconv.Itoa(n.percent), strconv.Itoa(n.judged), strconv.Itoa(n.kept),
			strconv.FormatFloat(n.promised/math.Max(n.free, 1), 'f', 4, 64),
		})
	}
	if err := errors.Join(w.WriteAll(lines), f.Close()); err != nil {
		return fmt.Errorf("write the figures of the nodes: %w", err)
	}
	return nil
}
