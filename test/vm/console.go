package vm

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"time"
)

// The marker lines in the guest's output, before and after the output of each
// command; see init.sh and [script]. A marker begins with a newline, because
// the last line of a program may lack one. [console] removes this newline.
const (
	markReady = "@@tenon ready"
	markBegin = "@@tenon begin " // followed by the name
	markEnd   = "@@tenon end "   // followed by the exit status
	markDone  = "@@tenon done"
)

// A console is an io.Writer. It splits the output of the guest into outcomes of
// the commands.
type console struct {
	copy     io.Writer
	begun    time.Time
	boot     time.Duration
	outcomes []Outcome
	done     bool

	line    []byte // the last line, while it is incomplete
	name    string // the running command; empty: none
	since   time.Time
	output  strings.Builder
	history []string // the last lines
}

func newConsole(w io.Writer, begun time.Time) *console {
	return &console{copy: w, begun: begun}
}

// Write handles a piece of the guest's output. It fails only if it cannot copy
// the piece.
func (c *console) Write(p []byte) (int, error) {
	for piece := range bytes.Lines(p) {
		c.line = append(c.line, piece...)
		if piece[len(piece)-1] != '\n' {
			break
		}
		// The terminal of the guest ends a line with carriage return and
		// newline.
		line := strings.TrimRight(string(c.line), "\r\n")
		c.line = c.line[:0]
		c.read(line)
		if _, err := io.WriteString(c.copy, line+"\n"); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *console) read(line string) {
	c.history = append(c.history, line)
	if len(c.history) > 30 {
		c.history = c.history[1:]
	}
	switch {
	case line == markReady:
		c.boot = time.Since(c.begun)
	case line == markDone:
		c.done = true
	case strings.HasPrefix(line, markBegin):
		c.name = strings.TrimPrefix(line, markBegin)
		c.since = time.Now()
		c.output.Reset()
	case strings.HasPrefix(line, markEnd) && c.name != "":
		exit, err := strconv.Atoi(strings.TrimPrefix(line, markEnd))
		if err != nil {
			exit = -1
		}
		c.outcomes = append(c.outcomes, Outcome{
			Name:   c.name,
			Exit:   exit,
			Output: strings.TrimSuffix(c.output.String(), "\n"),
			Took:   time.Since(c.since),
		})
		c.name = ""
	case c.name != "":
		c.output.WriteString(line)
		c.output.WriteByte('\n')
	}
}

// describeProgress describes the last thing that the guest did.
func (c *console) describeProgress() string {
	switch {
	case c.boot == 0:
		return "boot"
	case c.name != "":
		return "command " + c.name
	}
	return "shutdown"
}

// tail returns the last lines of the console.
func (c *console) tail() string {
	return strings.Join(append(c.history, string(c.line)), "\n")
}
