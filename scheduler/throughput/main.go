// Command throughput measures how much CPU it costs to schedule a pod with and
// without the plugin. It uses one process, the framework and the queue of
// kube-scheduler, and an API server in memory.
//
//	go run ./throughput -nodes 1000,5000 -rounds 30 -out DIR
//
// In each round, there is one part for each share of pods that ask for CPUs. In
// each part, these schedulers are measured once, in random order: kube-scheduler,
// kube-scheduler once more, kube-scheduler with the plugin, and kube-scheduler
// with each of two plugins that do nothing. The same pods are scheduled on the
// same nodes. The figure of a block is the CPU time of the process for each pod.
// The ratio of the two equal schedulers shows how exact the comparison is.
//
//	go run ./throughput -memory -nodes 5000 -bound 50000
//
// measures the memory of the schedulers, each in a process of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// options are the values of the flags.
type options struct {
	nodes, shares []int
	rounds, pods  int
	seed          uint64
	out           string
	collect       bool
	refusing      int
	memory        bool
	bound         int
	only          string
	profile       string
	binaries      string
}

func parse(args []string) (options, error) {
	f := flag.NewFlagSet("throughput", flag.ContinueOnError)
	nodes := f.String("nodes", "1000,5000", "the numbers of nodes, each a cluster of its own")
	shares := f.String("shares", "0,30,100", "the shares of pods that ask for CPUs, in percent")
	o := options{}
	f.IntVar(&o.rounds, "rounds", 30, "the number of rounds; fewer than 30 decide no difference of a few percent (docs/lab-statistics.md)")
	f.IntVar(&o.pods, "pods", 1000, "the number of pods of a block")
	f.Uint64Var(&o.seed, "seed", 17, "decides the order of the blocks")
	f.StringVar(&o.out, "out", "", "the folder for blocks.csv")
	f.BoolVar(&o.collect, "gc", false, "collect garbage during the blocks, too: the figure of a block then depends on whether a collection falls into it")
	f.IntVar(&o.refusing, "refusing", 0, "the share of nodes that take no pod that asks for CPUs, in percent; while all nodes have room, the plugin need not filter")
	f.BoolVar(&o.memory, "memory", false, "measure memory instead")
	f.IntVar(&o.bound, "bound", 50000, "the number of bound pods for -memory")
	f.StringVar(&o.profile, "profile", "", "write a CPU profile of each block to this folder")
	f.StringVar(&o.binaries, "api", "", "the folder with kube-apiserver and etcd: measure on a real API server, by pods per second")
	f.StringVar(&o.only, "only", "", "used by -memory for its processes")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.nodes, err = numbers("-nodes", *nodes, 1, 20000); err != nil {
		return o, err
	}
	if o.shares, err = numbers("-shares", *shares, 0, 100); err != nil {
		return o, err
	}
	if o.rounds < 1 || o.pods < 1 || o.bound < 0 || o.refusing < 0 || o.refusing > 99 {
		return o, errors.New("-rounds and -pods: want at least 1; -bound: want at least 0; -refusing: want 0 to 99")
	}
	return o, nil
}

func numbers(flag, text string, least, most int) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%s: %q: want numbers from %d to %d, such as %d,%d", flag, text, least, most, least, most)
		}
		all = append(all, n)
	}
	return all, nil
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		switch {
		case o.only != "":
			err = memoryOf(ctx, o)
		case o.memory:
			err = memory(ctx, o)
		default:
			err = run(ctx, o)
		}
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "throughput:", err)
		os.Exit(1)
	}
}

// A site is where the schedulers are compared: on API servers in memory, or on a
// real one.
type site struct {
	names   []string // of the schedulers
	table   func([]block) string
	summary func(options, []block) string
	// enter makes a cluster with a number of nodes. leave waits for its end.
	enter func(ctx context.Context, o options, nodes int) (m measure, leave func(), err error)
}

// A measure measures a scheduler once.
type measure func(ctx context.Context, o options, scheduler string, share, round int) (block, error)

// A block is one measurement of one scheduler. A site leaves out what it does not
// measure.
type block struct {
	nodes, share, round int
	arm                 string
	cpu, wall           time.Duration   // for one pod; on a real API server wall is from the first request to bind a pod to the last answer
	bytes               float64         // allocated memory for one pod
	writes              float64         // requests that write, for one pod
	binds               []time.Duration // of each request to bind a pod
}

// site returns where the schedulers are compared.
func (o options) site() site {
	if o.binaries != "" {
		return site{realNames, realTable, realSummary, enterReal}
	}
	return site{names, table, summary, enterMemory}
}

// run measures each number of nodes.
func run(ctx context.Context, o options) error {
	if o.out != "" { // before the blocks, which take minutes
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
	}
	rnd := rand.New(rand.NewPCG(o.seed, 1))
	var all []block
	for _, nodes := range o.nodes {
		found, err := compare(ctx, o, nodes, rnd)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	at := o.site()
	fmt.Print(at.summary(o, all))
	if o.out == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(o.out, "blocks.csv"), []byte(at.table(all)), 0o644)
}

// compare measures one number of nodes. It omits the first round, in which the
// processes warm up.
func compare(ctx context.Context, o options, nodes int, rnd *rand.Rand) ([]block, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	at := o.site()
	m, leave, err := at.enter(ctx, o, nodes)
	if err != nil {
		return nil, err
	}
	defer leave()
	var all []block
	begun, arms := time.Now(), slices.Clone(at.names)
	for round := range o.rounds + 1 {
		rnd.Shuffle(len(o.shares), func(a, b int) { o.shares[a], o.shares[b] = o.shares[b], o.shares[a] })
		for _, share := range o.shares {
			rnd.Shuffle(len(arms), func(a, b int) { arms[a], arms[b] = arms[b], arms[a] })
			for _, name := range arms {
				b, err := m(ctx, o, name, share, round)
				if err != nil {
					return nil, fmt.Errorf("%s, %d nodes, %d %%: %w", name, nodes, share, err)
				}
				b.nodes, b.share, b.round, b.arm = nodes, share, round, name
				if round > 0 {
					all = append(all, b)
				}
			}
		}
		fmt.Fprintf(os.Stderr, "%d nodes: round %d of %d after %v\n", nodes, round, o.rounds, time.Since(begun).Round(time.Second))
	}
	return all, nil
}

// startProfile starts a CPU profile of a block if the user wants one. The
// returned function ends the profile. Only the first call has an effect.
func (o options) startProfile(name string) (func(), error) {
	if o.profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(o.profile, name+".pb.gz"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		pprof.StopCPUProfile()
		_ = f.Close() // the profile is for a person, who sees that it is cut off
	}), nil
}
