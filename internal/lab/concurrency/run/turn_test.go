package run

import (
	"testing"

	"tenon.sh/tenon/test/turn"
)

// inTurns are tests of which half runs for each commit, and in make soak all of them.
// TestTranscodesAreCountedAndLeaveNothing runs for each commit.
var inTurns = []string{
	"TestEndlessTranscodesAreCountedByFrames",
	"TestOwnJobsRunToTheirEnd",
	"TestAPoolHasTheLimitAsItsQuota",
	"TestInterruptedJobsAreEnded",
}

func inTurn(t *testing.T) {
	t.Helper()
	turn.Skip(t, 2, inTurns)
}
