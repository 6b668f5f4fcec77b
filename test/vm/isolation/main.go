// Command isolation judges the kernel's scheduler under several isolation
// mechanisms, one after another. An LS load and a BE load share the CPUs of a
// virtual machine. The command runs inside the machine, as root, traces the
// scheduler, and prints one line of JSON for each case. Lines with # are
// progress messages.
//
//	isolation cases [-for 500ms] pinned:1ms:alone,apart,idle cores:10ms:idle,scx
//	isolation cycles [-count 5]
//	isolation saturate [-for 60s]
//	isolation means [-threads 1,4,8] [-seeds 1,2] default,floor,idle
//
// On the host, it makes a table from the output of means:
//
//	isolation table FILE...
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "isolation:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want a command: cases, cycles, saturate, means or table")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	case "cases":
		settle := flags.Duration("settle", 300*time.Millisecond, "what passes before the judged time of a case")
		measure := flags.Duration("for", 500*time.Millisecond, "the judged time of a case; at least 50 bursts long")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		// While LS works, the siblings of its CPUs are free, so only CPUs 1 and
		// 3 are busy.
		b, err := newBench(ctx, *settle, *measure, "1,3")
		if err != nil {
			return err
		}
		for _, text := range flags.Args() {
			if err = b.cases(ctx, text); err != nil {
				break
			}
		}
		return errors.Join(err, b.close())
	case "means":
		return runMeans(ctx, flags, args[1:])
	case "table":
		return printTable(os.Stdout, args[1:])
	case "cycles":
		count := flags.Int("count", 5, "how often the scheduler is attached and detached")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return cycles(ctx, *count)
	case "saturate":
		length := flags.Duration("for", time.Minute, "how long LS keeps all CPUs busy")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return saturate(ctx, *length)
	}
	return fmt.Errorf("unknown command %q: want cases, cycles, saturate, means or table", args[0])
}

// runMeans runs the command means.
func runMeans(ctx context.Context, flags *flag.FlagSet, args []string) error {
	settle := flags.Duration("settle", 200*time.Millisecond, "what passes before the judged time of a cell")
	measure := flags.Duration("for", time.Second, "the judged time of a cell")
	late := flags.Duration("late", 100*time.Microsecond, "the wait from which on a wake-up is late")
	threads := flags.String("threads", "1,4,8", "threads of the service, separated by commas")
	seeds := flags.String("seeds", "1,2", "seeds of the schedules, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := meansPlan{late: *late, means: strings.Split(flags.Arg(0), ",")}
	var err error
	if p.threads, err = numbers(*threads); err != nil {
		return fmt.Errorf("-threads: %w", err)
	}
	if p.seeds, err = numbers(*seeds); err != nil {
		return fmt.Errorf("-seeds: %w", err)
	}
	byCPU, err := cores()
	if err != nil {
		return err
	}
	var busy []string // all CPUs except CPU 0
	for cpu := 1; cpu < len(byCPU); cpu++ {
		busy = append(busy, strconv.Itoa(cpu))
	}
	b, err := newBench(ctx, *settle, *measure, strings.Join(busy, ","))
	if err != nil {
		return err
	}
	b.around = 100 * time.Millisecond
	return errors.Join(p.run(ctx, b), b.close())
}

// cases runs the cases "SCENE:BURST:MODE,MODE…".
func (b *bench) cases(ctx context.Context, text string) error {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) < 3 {
		return fmt.Errorf("case %q: want SCENE:BURST:MODES", text)
	}
	sc, ok := scenes[parts[0]]
	if !ok {
		return fmt.Errorf("case %q: unknown scene %q", text, parts[0])
	}
	burst, err := time.ParseDuration(parts[1])
	if err != nil {
		return fmt.Errorf("case %q: %w", text, err)
	}
	for name := range strings.SplitSeq(parts[2], ",") {
		m, ok := modes[name]
		if !ok {
			return fmt.Errorf("case %q: unknown mode %q", text, name)
		}
		r, err := b.runCase(ctx, sc, m, burst)
		if err != nil {
			return fmt.Errorf("case %s:%v:%s: %w", parts[0], burst, name, err)
		}
		r.Scene, r.Mode, r.Burst = parts[0], name, burst
		if err := report(r); err != nil {
			return err
		}
	}
	return nil
}

// report prints a line of JSON.
func report(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Printf("%s\n", line)
	}
	return err
}
