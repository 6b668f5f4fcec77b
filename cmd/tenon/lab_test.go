package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/lab/harness"
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

// TestAnExperimentWhoseRunsCannotBeReadSaysWhy has runs but no findings.
func TestAnExperimentWhoseRunsCannotBeReadSaysWhy(t *testing.T) {
	unreadable := errors.New("line 7 ends with CR alone")
	for _, o := range []output{text, jsonText} {
		err := experiment(&cobra.Command{}, &global{output: o}, func(context.Context) (harness.Outcome, error) {
			return harness.Outcome{Runs: 1}, unreadable
		})
		if !errors.Is(err, unreadable) {
			t.Errorf("-o %s: error %v", o, err)
		}
	}
}
