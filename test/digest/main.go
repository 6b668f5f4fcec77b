// Digest reads what go test -json prints and says it shorter: a line for each
// test that is over, but for those that passed within a second, and at the end
// each failure with what the test said and its last lines, and the notes of the
// tests (lines that begin with NOTE:). So the last lines of a long run tell what
// came of it.
//
//	go test -json ./test/vm | digest LOG
//
// LOG gets all of it, as go test -v prints it. The exit status is 1 if anything
// failed or nothing ran.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json PACKAGES | digest LOG")
		os.Exit(2)
	}
	// Whoever interrupts means the tests; what they said until then is wanted.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ok, err := run(os.Stdin, os.Stdout, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "digest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run writes the digest of in to out, and all of it to the file log.
func run(in io.Reader, out io.Writer, log string) (ok bool, err error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return false, err
	}
	file, err := os.Create(log)
	if err != nil {
		return false, err
	}
	defer file.Close() // once more does no harm
	d := newDigest(out, file)
	if err := d.read(in); err != nil {
		return false, err
	}
	fmt.Fprintln(out)
	d.summary(out)
	fmt.Fprintf(out, "all of it: %s\n", log)
	return d.ok(), file.Close()
}
