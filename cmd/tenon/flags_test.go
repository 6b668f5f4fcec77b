package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/work"
)

// TestWrongFlagsAreRefusedBeforeTheExperiment checks the whole errors of wrong
// command lines. The context of the commands has ended, so that no experiment
// begins. AFILE is a file, and SERVICES the list of services.
func TestWrongFlagsAreRefusedBeforeTheExperiment(t *testing.T) {
	t.Chdir(t.TempDir())
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct{ line, want string }{
		// Values out of range, also where zero stands for the default.
		{"concurrency --cpus 2040", "--cpus 2040: CPU 2040 is not online or not allowed here; usable are *"},
		{"concurrency --max-steal -1", "--max-steal -1: want more than 0 and at most 100 percent"},
		{"concurrency --max-steal NaN", "--max-steal NaN: want more than 0 and at most 100 percent"},
		{"concurrency --max-foreign 101", "--max-foreign 101: want more than 0 and at most 100 percent"},
		{"concurrency --input /nonexist", "--input: stat /nonexist: no such file or directory"},
		{"concurrency --out AFILE", "--out AFILE: it is not a directory"},
		{"concurrency --out AFILE/x", "--out AFILE/x: stat AFILE/x: not a directory"},
		{"concurrency --limits 5000", "--limits 5000: want none, or 0.01 to 2048 CPUs"},
		{"concurrency --limits 0", "--limits: 0: want none, or 0.01 to 2048 CPUs"},
		{"concurrency --limits 0.001", "--limits 0.001: want none, or 0.01 to 2048 CPUs"},
		{"concurrency --jobs 0", "--jobs 0: want 1 to 512 jobs at once"},
		{"concurrency --job EMPTY", `--job "": want a command for the shell`},
		{"concurrency --preset EMPTY", `--preset "": want one of below-one, *`},
		{"concurrency --kubernetes --strategies pinned", "--strategies pinned: no part of Kubernetes gives several pods a set of CPUs in common: *"},
		{"concurrency --kubernetes --strategies quota,pinned --node a,,b", `--node "a,,b": want names of nodes, separated by commas`},
		{"concurrency --strategies quota --limits none", "--strategies and --limits make no cell: unbounded is the only strategy with the limit none, and has no other"},
		{"concurrency --blocks 0", "--blocks 0: want 1 or more"},
		{"concurrency --slice 0", "--slice 0: want 1 to 2048 CPUs"},
		{"concurrency --work 0s", "--work 0s: want 50ms to 1h of CPU time"},
		{"concurrency --window 0s", "--window 0s: want 200ms to 1h"},
		{"concurrency --warmup 0s", "--warmup 0s: want more than 0 and at most 1h"},
		{"concurrency --max-time 0s", "--max-time 0s: want more than 0"},
		{"concurrency --blocks 0 --slice 0", "--blocks 0: want 1 or more; --slice 0: want 1 to 2048 CPUs"},
		{"pinning --max-steal 101", "--max-steal 101: want more than 0 and at most 100 percent"},
		{"pinning --cpus 2040", "--cpus 2040: CPU 2040 is not online or not allowed here; usable are *"},
		{"pinning --limit 0", "--limit 0: want 1 or more"},
		{"pinning --limit -1", "--limit -1: want 1 or more"},
		{"pinning --rounds -1", "--rounds -1: want 1 or more"},
		{"pinning --threads 0", "--threads 0: want 1 to 9000"},
		{"pinning --digits 0", "--digits 0: want 1 to *"},
		{"pinning --digits -1", "--digits -1: want 1 to *"},
		{"pinning --duration 0s", "--duration 0s: want 1s or more"},
		{"pinning --duration -1s", "--duration -1s: want 1s or more"},
		{"pinning --work 0s", "--work 0s: want more than 0"},
		{"pinning --modes foo", `--modes "foo": want some of shared, *`},
		{"pinning --parts pi,pi", "--parts: pi is listed twice"},
		{"pinning --modes shared,shared", "--modes: shared is listed twice"},
		{"concurrency --strategies quota,quota", "--strategies: quota is listed twice"},
		{"colocation --load 0%", "--load 0%: want more than 0 and at most 90 percent"},
		{"colocation --margin 0", "--margin 0: want a ratio above 1, such as 1.03"},
		{"colocation --connections 0", "--connections 0: want 1 or more"},
		{"load http://127.0.0.1:1/ --rate 10 --connections 0", "--connections 0: want 1 or more"},
		{"colocation --be-threads 0", "--be-threads 0: want 1 or more"},
		{"colocation --be-threads -2", "--be-threads -2: want 1 or more"},
		{"colocation --duration 0s", "--duration 0s: want 1s or more"},
		{"kernel-qos --load 0%", "--load 0%: want more than 0 and at most 90 percent"},
		{"kernel-qos --max-steal -1", "--max-steal -1: want more than 0 and at most 100 percent"},
		{"colocation --cpus 2040", "--cpus 2040: CPU 2040 is not online or not allowed here; usable are *"},
		{"memory --max-steal -1", "--max-steal -1: want more than 0 and at most 100 percent"},
		{"memory --max-steal 0", "--max-steal 0: want more than 0 and at most 100 percent"},
		{"memory --max-steal NaN", "--max-steal NaN: want more than 0 and at most 100 percent"},
		{"memory --blocks 0 --duration 0s", "--blocks 0: want 1 or more; --duration 0s: want 1s or more"},
		{"memory --rate 0", "--rate 0: want more than 0 requests per second"},
		{"memory --set 0", "--set 0: want 32Mi or more"},
		{"memory --data EMPTY", `--data "": want a directory`},
		{"reaction --max-steal 0", "--max-steal 0: want more than 0 and at most 100 percent"},
		{"reaction --blocks 0 --contrast 0 --steps 0", "--blocks 0: want 1 or more; --contrast 0: want 1 or more; --steps 0: want 1 or more"},
		{"reaction --step 0s", "--step 0s: want 20ms to 1m"},
		{"reaction --min-pause 0s --max-pause 0s", "--max-pause 0s: want more than 0; --min-pause 0s: want more than 0"},

		// Flags that do not fit together.
		{"colocation --batch xz --work-regexp (", "--work-regexp is for a --batch command of your own"},
		{"colocation --batch true --work-regexp (", "--work-regexp: error parsing regexp: missing closing ): `(`"},
		{"colocation --batch true --work-regexp (a)(b)", `--work-regexp "(a)(b)": want at most one group, the amount so far`},
		{"colocation --batch true --work-regexp ^", `--work-regexp "^": it matches an empty line: want a part of the lines that say what has been done`},
		{"colocation --batch true --work-regexp EMPTY", `--work-regexp "": want a regular expression`},
		{"colocation --load 30% --load 40%", `invalid argument "40%" for "--load" flag: want one percentage, and 30% was given already: see tenon lab colocation --help`},
		{"colocation --service true --load http://127.0.0.1:99999/", `--load: url "http://127.0.0.1:99999/": port 99999: want 1 to 65535`},
		{"colocation --load redis://127.0.0.1:6379", "--load redis://127.0.0.1:6379: the service nginx answers http://"},
		{"colocation --service memcached --load postgres://a@127.0.0.1/b", "--load postgres://a@127.0.0.1/b: the service memcached answers memcached://"},
		{"colocation --service self --client wrk", "--client wrk is for nginx beside ffmpeg"},
		{"colocation --service redis --client wrk", "--client wrk is for nginx beside ffmpeg"},
		{"colocation --batch xz --be-threads 3", "--be-processes, --be-threads and --input are for ffmpeg, which is not among --batch"},
		{"colocation --batch-pods 4", "--batch-pods is for --kubernetes"},
		{"colocation --kubernetes --batch-pods 0", "--batch-pods 0: want 1 or more"},
		{"colocation --kubernetes --batch-pods -1", "--batch-pods -1: want 1 or more"},
		{"colocation --kubernetes --batch-pods 2 --batch-pod-cpu much", `--batch-pod-cpu: cpu amount "much": *`},
		{"colocation --kubernetes --batch-pod-cpu 100m", "--batch-pod-cpu is for --batch-pods: it is what each of them asks for"},
		{"colocation --kubernetes --batch-pods 2 --design switch", "--batch-pods is for --design blocks: the scheduler places the pods of each mode anew*"},
		{"colocation --kubernetes --batch-pods 2 --modes exclusive,default-65", "mode default-65: with --batch-pods want some of exclusive,default,burstable,tenon and exclusive-aa"},
		{"colocation --batch xz --modes exclusive,default-65", "mode default-65 paces ffmpeg: leave it out with --modes"},

		// Names that are no programs.
		{"colocation --service rediss", `--service "rediss": no program of this name is on the PATH, and it is none of SERVICES: did you mean redis?`},
		{"colocation --service foo", `--service "foo": no program of this name is on the PATH, and it is none of SERVICES`},
		{"colocation --service true", `--service "true" is a command, not one of SERVICES, so it needs --load: where the service listens, *`},
		{"colocation --batch memor", `--batch "memor": no program of this name is on the PATH, and it is none of ffmpeg, xz, compile, memory: did you mean memory?`},

		// Texts that are no numbers.
		{"concurrency --seed -1", `invalid argument "-1" for "--seed" flag: want a whole number from 0: see tenon lab concurrency --help`},
		{"pinning --limit 1.5", `invalid argument "1.5" for "--limit" flag: want a whole number: see tenon lab pinning --help`},
		{"pinning --duration 3", `invalid argument "3" for "--duration" flag: want a duration such as 1m30s: see tenon lab pinning --help`},
		{"concurrency --max-steal much", `invalid argument "much" for "--max-steal" flag: want a number: see tenon lab concurrency --help`},
		{"concurrency --no-retry=maybe", `invalid argument "maybe" for "--no-retry" flag: want true or false: see tenon lab concurrency --help`},
		{"concurrency --limits -2", `--limits: cpu amount "-2": *`},
	} {
		c.want = strings.ReplaceAll(c.want, "SERVICES", strings.Join(work.Services, ", "))
		args := append([]string{"lab"}, strings.Fields(c.line)...)
		for i := range args {
			args[i] = strings.ReplaceAll(strings.ReplaceAll(args[i], "AFILE", file), "EMPTY", "")
		}
		root := newRootCommand()
		root.SetArgs(args)
		err := root.ExecuteContext(ended)
		if err == nil {
			t.Errorf("%s: no error", c.line)
			continue
		}
		got := strings.ReplaceAll(cmdline.OneLine(err), file, "AFILE")
		if begin, more := strings.CutSuffix(c.want, "*"); got != c.want && !(more && strings.HasPrefix(got, begin) && !strings.Contains(got, "; --")) {
			t.Errorf("%s:\n got %s\nwant %s", c.line, got, c.want)
		}
		if cmdline.ExitStatus(err) != cmdline.ExitUsage {
			t.Errorf("%s: status 1, want 2", c.line)
		}
	}
}
