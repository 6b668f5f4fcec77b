package work

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

var (
	XZProgram       = Program{Name: "xz", Packages: "apt install xz-utils | dnf install xz | apk add xz", Version: []string{"--version"}}
	CompilerProgram = Program{Name: "cc", Packages: "apt install gcc libc6-dev | dnf install gcc | apk add gcc musl-dev", Version: []string{"--version"}}
)

// batchKinds lists the batch work that a user can choose by name: the unit of its
// progress, and what starts it. dir is a directory of the lab. The first is the
// default, which the experiment starts by itself.
var batchKinds = []struct {
	name, unit string
	argv       func(s *testbed.Site, dir string) ([]string, error)
}{
	{name: "ffmpeg", unit: "frames"},
	{"xz", "MiB", func(s *testbed.Site, _ string) ([]string, error) {
		path, err := XZProgram.Find()
		return s.Child("xz", path), err
	}},
	{"compile", "files", func(_ *testbed.Site, dir string) ([]string, error) {
		path, err := CompilerProgram.Find()
		if err != nil {
			return nil, err
		}
		source := filepath.Join(dir, "unit.c")
		return []string{"/bin/sh", "-c", `n=0; while "$1" -O2 -c -o "$2.o" "$2"; do n=$((n+1)); echo work $n; done`, "compile", path, source}, os.WriteFile(source, sourceText(), 0o644)
	}},
	{"memory", "MiB", func(s *testbed.Site, _ string) ([]string, error) {
		return s.Child("memory", unit.Bytes(memorySize).String()), nil
	}},
}

// BatchWorks lists the batch work that a user can choose by name.
var BatchWorks = func() (names []string) {
	for _, k := range batchKinds {
		names = append(names, k.name)
	}
	return names
}()

// workLine matches the lines with which batch work prints its progress. ffmpeg
// prints it in another form.
var workLine = regexp.MustCompile(`^work ([0-9.]+)$`)

// workPeriod is the time between two lines of progress.
const workPeriod = 200 * time.Millisecond

// memorySize is the amount of memory that the batch work "memory" copies. It is
// larger than a cache.
const memorySize = 256 << 20

// A Work is batch work that is not the lab's ffmpeg.
type Work struct {
	Name string
	Argv []string
	// Line matches the lines of the output that report progress. Its group
	// matches the amount of work done so far. If it has no group, each line
	// counts as one unit. If Line is nil, the work is measured in CPU seconds.
	Line *regexp.Regexp
	Unit string
}

// FindWork returns batch work. command is one of BatchWorks, or a shell command of
// the user. dir is a directory of the lab.
func FindWork(s *testbed.Site, command string, line *regexp.Regexp, dir string) (w Work, err error) {
	if i := slices.Index(BatchWorks, command); i >= 0 {
		w = Work{Name: command, Unit: batchKinds[i].unit}
		if argv := batchKinds[i].argv; argv != nil {
			w.Line = workLine
			w.Argv, err = argv(s, dir)
		}
		return w, err
	}
	w = Work{Name: programOf(command), Argv: shell(command), Line: line, Unit: "CPU s"}
	if line != nil {
		w.Unit = "work"
	}
	return w, nil
}

// Job returns the work as a job of one process. Whenever the process ends with
// status 0, it starts again.
func (w Work) Job() Job {
	return Job{Name: w.Name, Slots: 1, Argv: func(int) []string { return w.Argv }, Restart: true, Line: w.Line, CPUTime: w.Line == nil}
}

// sourceText returns a C file with thirty functions. A compiler needs about a
// tenth of a second for it.
func sourceText() []byte {
	b := []byte("#include <stdio.h>\n")
	for i := range 30 {
		b = fmt.Appendf(b, "int f%d(int *a, int n) { int s = %d; for (int i = 0; i < n; i++) { s += a[i] * %d; if (s & 8) a[i] ^= s; else s -= a[(i * 7) %% n]; } return s; }\n", i, i, i+3)
	}
	return append(b, "int main(void) { int a[4] = {1, 2, 3, 4}; printf(\"%d\", f1(a, 4)); return 0; }\n"...)
}

// Compress feeds xz with text until ctx ends. It prints how many MiB xz has
// read.
func Compress(ctx context.Context, xz string, out io.Writer) error {
	runtime.LockOSThread() // the parent-death signal depends on this thread
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, xz, "-6", "-T1", "-c")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("xz: %w", err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("xz: %w", err)
	}
	text, said := words(1<<20), time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		const piece = 16 << 10
		at := n * piece % len(text)
		if _, err := in.Write(text[at : at+piece]); err != nil {
			break // xz has ended; Wait says why
		}
		if time.Since(said) >= workPeriod {
			said = time.Now()
			fmt.Fprintf(out, "work %.4f\n", float64(n+1)*piece/(1<<20))
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("xz: %w", err)
	}
	return nil
}

// words returns a text of random words. Each call returns the same text.
func words(size int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var list [2000]string
	for i := range list {
		word := make([]byte, 2+random.IntN(9))
		for k := range word {
			word[k] = byte('a' + random.IntN(26))
		}
		list[i] = string(word) + " "
	}
	b := make([]byte, 0, size+16)
	for len(b) < size {
		b = append(b, list[random.IntN(len(list))]...)
	}
	return b[:size]
}

// Memory maps memory of the given size. It copies one half to the other again
// and again, until ctx ends. It prints how many MiB it has copied.
func Memory(ctx context.Context, size unit.Bytes, out io.Writer) error {
	memory, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("memory: map %v bytes: %w", size, err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	const piece = 1 << 20
	half, said := len(memory)/2, time.Now()
	for n := 1; ctx.Err() == nil; n++ {
		at := n * piece % half
		copy(memory[half+at:min(half+at+piece, len(memory))], memory[at:])
		if time.Since(said) >= workPeriod {
			said = time.Now()
			fmt.Fprintf(out, "work %d\n", n)
		}
	}
	return nil
}

// markEvery is the minimum time between two marks that are kept. Some commands
// print very many lines.
const markEvery = 20 * time.Millisecond

// thin removes the last mark but one, if the marks before and after it are
// close.
func (m *Marks) thin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.marks); n > 2 && m.marks[n-1].At.Sub(m.marks[n-3].At) < markEvery {
		m.marks[n-2] = m.marks[n-1]
		m.marks = m.marks[:n-1]
	}
}

// FollowLines reads lines until r ends. If a line matches, it counts as
// progress.
func (m *Marks) FollowLines(r io.Reader, line *regexp.Regexp, now func() time.Time) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	done := 0.0
	for lines.Scan() {
		found := line.FindSubmatch(lines.Bytes())
		switch {
		case found == nil:
			continue
		case len(found) == 1:
			done++
		default:
			amount, err := strconv.ParseFloat(string(found[1]), 64)
			if err != nil || !(amount >= 0) {
				continue
			}
			done = amount
		}
		m.Add(Mark{At: now(), Frames: done})
		m.thin()
	}
	return lines.Err()
}
