package perf

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// TestTheCountIncludesDescendants counts the context switches of a shell whose
// child sleeps twenty times. The sleeps of the child must count.
func TestTheCountIncludesDescendants(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `read -r _; exec /bin/sh -c '/bin/sh -c "i=0; while [ \$i -lt 20 ]; do sleep 0.001; i=\$((i+1)); done"; true'`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := Count(cmd.Process.Pid, Switches)
	if err != nil {
		in.Close()
		cmd.Wait()
		if os.Getenv("TENON_TEST_STRICT") == "1" && os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer c.Close()
	if n, err := c.Read(); err != nil || n != 0 {
		t.Errorf("%v switches before the program runs (%v)", n, err)
	}
	in.Write([]byte("\n"))
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(); err != nil || n < 20 {
		t.Errorf("%v switches, want one for each sleep (%v)", n, err)
	}
}

func TestWhatTheMachineCannotCountIsUnsupported(t *testing.T) {
	_, err := Count(os.Getpid(), Event{"no such event", 0, 1 << 40})
	if err == nil {
		t.Fatal("an event that does not exist is counted")
	}
	if c, err := Count(os.Getpid(), Cycles); err == nil {
		c.Close()
	} else if !errors.Is(err, ErrUnsupported) && os.Geteuid() == 0 {
		t.Errorf("cycles: %v: want a count or ErrUnsupported", err)
	}
}
