// Digest runs tests and says what came of them: a line for each test that is
// over, but for those that passed within a second, and at the end each failure
// with what the test said and its last lines, and the notes of the tests (lines
// that begin with NOTE:). So the last lines of a long run tell what came of it.
//
//	digest LOG ./test/vm -- go test -json -count=1
//
// LOG gets all of it, as go test -v prints it. The packages are those of the
// first run: a test that failed is run once more, alone, in its package. Failing
// twice fails; passing the second time passes and is said in a note, with what
// was wrong at first. (Decision 7 has the reasons.)
//
// The exit status is 1 if anything failed or nothing ran.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

func main() {
	split := slices.Index(os.Args, "--")
	if split < 3 || split == len(os.Args)-1 {
		fmt.Fprintln(os.Stderr, "usage: digest LOG PACKAGE... -- go test -json [FLAG...]")
		os.Exit(2)
	}
	// Whoever interrupts means the tests; what they said until then is wanted.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	ok, err := run(goTest(os.Args[split+1:], interrupted), os.Args[2:split], os.Stdout, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "digest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// A tester runs go test -json with more arguments, and lets read have what it
// prints. Failed tests are an error, too.
type tester func(read func(io.Reader) error, more ...string) error

// goTest returns the tester of a command. After an interrupt it runs nothing.
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

// run writes the digest of tests to out, and all of it to the file log.
func run(test tester, packages []string, out io.Writer, log string) (ok bool, err error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return false, err
	}
	file, err := os.Create(log)
	if err != nil {
		return false, err
	}
	defer file.Close() // once more does no harm
	d := newDigest(out, file)
	if err := test(d.read, packages...); err != nil && len(d.failures) == 0 {
		d.failures = append(d.failures, failure{name: "go test", lines: []string{err.Error()}})
	}
	d.repeat(test)
	fmt.Fprintln(out)
	d.summary(out)
	fmt.Fprintf(out, "all of it: %s\n", log)
	return d.ok(), file.Close()
}
