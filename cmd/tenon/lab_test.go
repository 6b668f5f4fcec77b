package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
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
