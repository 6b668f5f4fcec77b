// Digest runs tests and prints a summary. It prints a line for each test that
// has ended, except tests that passed within a second. At the end it prints
// each failure with the messages and the last lines of the test. It also prints
// the notes of the tests (lines that begin with NOTE: and the name of the
// test). The last lines of a long run therefore show its result.
//
//	digest [-once] [-skipped FILE] LOG ./test/vm -- go test -json -count=1
//	digest -only FILE LOG -- go test -json -count=1
//
// LOG gets the complete output in the form of go test -v. The packages are
// those of the first run. A failed test is repeated once, alone, in its
// package. If it fails again, it counts as failed. If it passes, it counts as
// passed, with a note that quotes the first failure. (Decision 7 has the
// reasons.) A test may have one such note. notes.txt lists the tests that have
// had one, and a second note is a failure.
//
// With -once, failed tests are not repeated. This is for tests that do not
// depend on time. With -skipped, if nothing failed, the packages in which a
// test was skipped are written to a file.
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
	only    string            // file; "": none
	known   map[string]string // the tests that have had their one note; see [parseNotes]
}

func main() {
	var o options
	flag.BoolVar(&o.once, "once", false, "repeat nothing")
	flag.StringVar(&o.skipped, "skipped", "", "file for the tests that were skipped")
	flag.StringVar(&o.only, "only", "", "file of the tests to run, as -skipped writes it")
	flag.Parse()
	args := flag.Args()
	split := slices.Index(args, "--")
	if split < 1 || (split == 1) != (o.only != "") || split == len(args)-1 {
		fmt.Fprintln(os.Stderr, "usage: digest [-once] [-skipped FILE] LOG PACKAGE... -- go test -json [FLAG...]\n       digest [-once] -only FILE LOG -- go test -json [FLAG...]")
		os.Exit(2)
	}
	// An interrupt ends the tests. The output so far is still summarised.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	var err error
	ok := false
	which := args[1:split]
	if o.only != "" {
		which, err = readSkipped(o.only)
	}
	if err == nil {
		o.known, err = parseNotes(notedBefore)
	}
	if err == nil {
		ok, err = run(goTest(args[split+1:], interrupted), which, o, os.Stdout, args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "digest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// A tester runs go test -json with more arguments, and passes the output to a
// function (read). It returns an error if a test failed.
type tester func(read func(io.Reader) error, more ...string) error

// goTest returns the tester of a command. After an interrupt, the tester does
// not start the command any more.
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

// run runs the tests. It writes the digest to a stream (out), and the complete output
// to the file log. It tests the packages, or the selected tests, in the list which.
func run(test tester, which []string, o options, out io.Writer, log string) (ok bool, err error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return false, err
	}
	file, err := os.Create(log)
	if err != nil {
		return false, err
	}
	defer file.Close() // a second Close is harmless
	d := newDigest(out, file)
	if err := test(d.read, which...); err != nil && len(d.failures) == 0 {
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
		if err := writeSkipped(o.skipped, d.skips); err != nil {
			return false, err
		}
	}
	return d.ok(), file.Close()
}

// writeSkipped writes one line for each skipped test, with its package and its
// name.
func writeSkipped(file string, skips map[place]bool) error {
	var lines []string
	for at := range skips {
		lines = append(lines, at.pkg+" "+at.test+"\n")
	}
	slices.Sort(lines)
	return os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644)
}

// readSkipped returns the arguments with which go test runs the tests in the
// file. If another of the packages has a test of the same name, this test runs,
// too.
func readSkipped(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	packages, tests := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		pkg, test, is := strings.Cut(strings.TrimSpace(line), " ")
		if !is || test == "" {
			return nil, fmt.Errorf("%s: %q: want PACKAGE TEST", file, strings.TrimSpace(line))
		}
		packages[pkg], tests[test] = true, true
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("%s names no test", file)
	}
	run := "-run=^(" + strings.Join(slices.Sorted(maps.Keys(tests)), "|") + ")$"
	return append([]string{run}, slices.Sorted(maps.Keys(packages))...), nil
}
