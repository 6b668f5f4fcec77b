package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
)

// TestAnInterruptedExperimentSaysWhatIsNotPutBack checks which errors the lab prints
// after Ctrl-C. It must not print the errors of the interruption itself.
func TestAnInterruptedExperimentSaysWhatIsNotPutBack(t *testing.T) {
	canceled, forbidden := fmt.Errorf("run 3: %w", context.Canceled), errors.New("delete pods: Forbidden")
	for want, err := range map[string]error{
		"":                       errors.Join(canceled, errors.Join(context.Canceled, nil)),
		"delete pods: Forbidden": fmt.Errorf("cell: %w", errors.Join(canceled, errors.Join(context.Canceled, forbidden))),
	} {
		got := withoutCanceled(err)
		if got == nil && want == "" {
			continue
		}
		if got == nil || got.Error() != want {
			t.Errorf("%q is left of %q, want %q", got, err, want)
		}
	}
}

// showFor returns the function that shows results in one form of output.
func showFor(o cmdline.Output) showFindings {
	return func(cmd *cobra.Command, f report.Findings) error { return printFindings(cmd, &global{output: o}, f) }
}

// TestAnExperimentWhoseRunsCannotBeReadSaysWhy has runs but no findings.
func TestAnExperimentWhoseRunsCannotBeReadSaysWhy(t *testing.T) {
	unreadable := errors.New("line 7 ends with CR alone")
	for _, o := range []cmdline.Output{cmdline.Text, cmdline.JSON} {
		err := experiment(&cobra.Command{}, showFor(o), func(context.Context) (harness.Outcome, error) {
			return harness.Outcome{Runs: 1}, unreadable
		})
		if !errors.Is(err, unreadable) {
			t.Errorf("-o %s: error %v", o, err)
		}
	}
}

// TestAnExperimentEndsInOrderIfItsStderrHasNoReader runs an experiment whose
// stderr is a pipe without a reader, as after 2>&1 | head, or after Ctrl-C has
// ended a tee. The variables of the environment are set in the process that
// runs the experiment.
func TestAnExperimentEndsInOrderIfItsStderrHasNoReader(t *testing.T) {
	const resultName, signalName = "TENON_TEST_CLEANED", "TENON_TEST_INTERRUPT"
	if cleaned := os.Getenv(resultName); cleaned != "" {
		_ = experiment(&cobra.Command{}, showFor(cmdline.Text), func(ctx context.Context) (harness.Outcome, error) {
			if os.Getenv(signalName) != "" {
				_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
				<-ctx.Done()
			}
			for end := time.Now().Add(20 * time.Second); ctx.Err() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
				fmt.Fprintln(os.Stderr, "run 1")
			}
			fmt.Fprintln(os.Stderr, "putting back")
			return harness.Outcome{}, errors.Join(ctx.Err(), os.WriteFile(cleaned, fmt.Append(nil, ctx.Err()), 0o644))
		})
		return
	}
	for _, interrupt := range []string{"", "1"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		cleaned := filepath.Join(t.TempDir(), "cleaned")
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), resultName+"="+cleaned, signalName+"="+interrupt)
		cmd.Stderr = w
		runErr := cmd.Run()
		w.Close()
		if got, err := os.ReadFile(cleaned); err != nil || string(got) != context.Canceled.Error() {
			t.Errorf("interrupt %q: the experiment ended with %q, %v, %v", interrupt, got, err, runErr)
		}
	}
}

// TestABrokenSocketEndsNoExperiment writes to a socket whose other end is closed,
// as a service closes its connections when it restarts.
func TestABrokenSocketEndsNoExperiment(t *testing.T) {
	ctx, stop := contextOfExperiment(t.Context())
	defer stop()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(pair[0])
	defer unix.Close(pair[1])
	if _, err := unix.Write(pair[1], []byte("GET")); !errors.Is(err, unix.EPIPE) {
		t.Fatalf("write: %v", err)
	}
	select {
	case <-ctx.Done():
		t.Error("the experiment ended")
	case <-time.After(100 * time.Millisecond):
	}
}
