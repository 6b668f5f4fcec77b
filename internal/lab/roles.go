package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/stepservice"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/turns"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Child runs a part of the lab that needs its own process. testbed.Setting.Self
// is the command that calls Child, and args are the arguments after it.
//
//	client      reads a load.Config from its input, writes a load.Result to its output
//	spin CPUS   keeps CPUS busy at the lowest priority
//	burn CPUS   keeps CPUS busy at the usual priority
//	step        reads a stepservice.Plan from its input, writes one line for each step to its output
//	hog FILE N  reads FILE again and again, keeps N bytes of it; writes its progress to its output
//	warm DIR    reads the files of DIR
//	thaw GROUP  waits until its input ends, then thaws the cgroup GROUP
//	turns       changes the mode of containers of this node, as its input says
//	self N M    drives N threads of M bytes each: load.Configs from its input, load.Results to its output
//	xz PATH     feeds the program xz with text; writes its progress to its output
//	memory N    copies N bytes of memory to and fro; writes its progress to its output
//	pi T D R    computes D digits of π with T threads in R rounds, writes a pi.Report to its output
func Child(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "client":
		var c load.Config
		if err := json.NewDecoder(in).Decode(&c); err != nil {
			return fmt.Errorf("read the load to make: %w", err)
		}
		// A garbage collection would stop the threads that send. This run is
		// short enough to do without one.
		debug.SetGCPercent(-1)
		r, err := load.Run(ctx, c)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(r)
	case len(args) == 2 && (args[0] == "spin" || args[0] == "burn"):
		cpus, err := unit.ParseCPUSet(args[1])
		if err != nil {
			return err
		}
		return work.Spin(ctx, cpus, args[0] == "spin")
	case len(args) == 1 && args[0] == "step":
		return stepservice.Run(ctx, in, out)
	case len(args) == 3 && args[0] == "hog":
		held, err := unit.ParseBytes(args[2])
		if err != nil {
			return err
		}
		return work.Hog(ctx, args[1], held, out)
	case len(args) == 3 && args[0] == "self":
		threads, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		memory, err := unit.ParseBytes(args[2])
		if err != nil {
			return err
		}
		return work.ServeSelf(ctx, load.Self{Threads: threads, Memory: memory}, in, out)
	case len(args) == 2 && args[0] == "xz":
		return work.Compress(ctx, args[1], out)
	case len(args) == 2 && args[0] == "memory":
		size, err := unit.ParseBytes(args[1])
		if err != nil {
			return err
		}
		return work.Memory(ctx, size, out)
	case len(args) == 2 && args[0] == "thaw":
		return testbed.Thaw(in, node.CgroupPath(args[1]))
	case len(args) == 1 && args[0] == turns.Role:
		return turns.Serve(ctx, in, out)
	case len(args) == 2 && args[0] == "warm":
		return work.Warm(args[1])
	case len(args) == 4 && args[0] == "pi":
		return pi.Main(args[1:], out)
	}
	return fmt.Errorf("lab child %q: want client, spin CPUS, burn CPUS, step, hog FILE BYTES, warm DIR, thaw GROUP, turns, self THREADS BYTES, xz PATH, memory BYTES or pi THREADS DIGITS ROUNDS", args)
}
