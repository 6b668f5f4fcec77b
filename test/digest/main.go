// Digest runs tests and prints a summary. It prints a line for each test that
// has ended, except tests that passed within a second. At the end it prints
// each failure with the messages and the last lines of the test, and the notes
// of the tests (lines that begin with NOTE: and the name of the test). The last
// lines of a long run therefore show its result.
//
//	digest [-once] [-skipped FILE] LOG ./test/vm -- go test -json -count=1
//
// LOG gets the complete output in the form of go test -v. The packages are
// those of the first run. A failed test is repeated once, alone, in its
// package. If it fails twice, it fails. If it passes the second time, it passes
// with a note that quotes the first failure. (Decision 7 has the reasons.) A
// test may have one such note: notes.txt lists the tests that have had one, and
// a second note fails.
//
// -once does not repeat failed tests; it is for tests that do not depend on
// time. -skipped writes the packages in which a test was skipped, if nothing
// failed.
//
// The exit status is 1 if anything failed or nothing ran.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// options are the flags of the command line.
type options struct {
	once    bool
	skipped string            // file; "": none
	known   map[string]string // the tests that already had a note; see [parseNotes]
}

func main() {
	var o options
	flag.BoolVar(&o.once, "once", false, "repeat nothing")
	flag.StringVar(&o.skipped, "skipped", "", "file for the packages in which a test was skipped")
	flag.Parse()
	args := flag.Args()
	split := slices.Index(args, "--")
	if split < 2 || split == len(args)-1 {
		fmt.Fprintln(os.Stderr, "usage: digest [-once] [-skipped FILE] LOG PACKAGE... -- go test -json [FLAG...]")
		os.Exit(2)
	}
	// An interrupt ends the tests; the output so far is still summarised.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	var err error
	ok := false
	if o.known, err = parseNotes(notedBefore); err == nil {
		ok, err = run(goTest(args[split+1:], interrupted), args[1:split], o, os.Stdout, args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "digest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// A tester runs go test -json with more arguments and passes the output to
// read. Failed tests are also an error.
type tester func(read func(io.Reader) error, more ...string) error

// goTest returns the tester of a command. After an interrupt it does not start
// the command any more.
func goTest(command []string, interrupted <-chan os.Signal) tester {
	return func(read func(io.Reader) error, more ...string) error {
		if len(interrupted) > 0 {
			return fmt.Errorf("interrupted")
		}
		cmd := exec.Command(command[0], slices.Concat(command[1:], more)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		if err := read(out); err != nil {
			return err
		}
		return cmd.Wait()
	}
}

// run writes the digest of the tests to out, and the complete output to the
// file log.
func run(test tester, packages []string, o options, out io.Writer, log string) (ok bool, err error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return false, err
	}
	file, err := os.Create(log)
	if err != nil {
		return false, err
	}
	defer file.Close() // a second Close is harmless
	d := newDigest(out, file)
	if err := test(d.read, packages...); err != nil && len(d.failures) == 0 {
		d.failures = append(d.failures, failure{name: "go test", lines: []string{err.Error()}})
	}
	if !o.once {
		d.repeat(test)
	}
	d.judgeNotes(o.known, today())
	fmt.Fprintln(out)
	d.summary(out)
	fmt.Fprintf(out, "all of it: %s\n", log)
	if o.skipped != "" && d.ok() {
		if err := os.WriteFile(o.skipped, []byte(strings.Join(slices.Sorted(maps.Keys(d.skips)), "\n")+"\n"), 0o644); err != nil {
			return false, err
		}
	}
	return d.ok(), file.Close()
}
