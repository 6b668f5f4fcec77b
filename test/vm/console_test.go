package vm

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// read returns a console that has received an output in small pieces, as from a pipe.
func read(output string) *console {
	c := newConsole(io.Discard, time.Now())
	for len(output) > 0 {
		n := min(5, len(output))
		io.WriteString(c, output[:n])
		output = output[n:]
	}
	return c
}

func TestConsoleKnowsWhereTheGuestStopped(t *testing.T) {
	whole := "[ 0.1] kernel\r\n@@tenon ready\r\n@@tenon begin one\r\nhello\r\n\r\n@@tenon end 0\r\n@@tenon done\r\n"
	for until, where := range map[string]string{"kernel": "boot", "hello": "command one", "end 0\r\n": "shutdown"} {
		cut := strings.Index(whole, until) + len(until)
		if c := read(whole[:cut]); c.describeProgress() != where || c.done {
			t.Errorf("cut after %q: in %s, done %v; want %s", until, c.describeProgress(), c.done, where)
		}
	}
	c := read(whole)
	if !c.done || len(c.outcomes) != 1 || c.outcomes[0].Output != "hello\n" {
		t.Errorf("done %v, outcomes %+v", c.done, c.outcomes)
	}
}

func TestInnerTestsAreReadWithTheirLogs(t *testing.T) {
	got := ParseGoTest(`=== RUN   TestA
=== RUN   TestA/sub
    a_test.go:3: no SMT here
=== NAME  TestA
    a_test.go:9: outer
--- FAIL: TestA (0.10s)
    --- SKIP: TestA/sub (0.00s)
=== RUN   TestB
--- PASS: TestB (0.00s)
PASS
`)
	want := []TestResult{
		{Name: "TestA", Action: "FAIL", Output: "    a_test.go:9: outer\n"},
		{Name: "TestA/sub", Action: "SKIP", Output: "    a_test.go:3: no SMT here\n"},
		{Name: "TestB", Action: "PASS"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}
