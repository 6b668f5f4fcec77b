package run

import (
	"testing"

	"tenon.sh/tenon/test/turn"
)

// inTurns are tests that run the whole experiment with another kind of service, mode
// or fault. A quarter of them runs for each commit, and in make soak all of them.
// TestColocationRunsAndLeavesNothing runs for each commit.
var inTurns = []string{
	"TestAKeptServiceStaysBetweenRuns",
	"TestAKeptServiceThatDrivesItselfGetsAnotherOrder",
	"TestRedisAndACommandRunBesideEachOther",
	"TestPostgreSQLRunsAsAnotherUser",
	"TestKernelQOSRunsAndLeavesNothing",
	"TestModesWithoutCgroupsStartAsLoginsDo",
	"TestABrokenServiceIsOneClearError",
	"TestInterruptKeepsFinishedRuns",
	"TestFaultsAreFoundBeforeAnythingRuns",
	"TestAServiceThatDrivesItselfLeavesNoCPUToAClient",
	"TestAServiceOfOnesOwnUnderALoadCommand",
	"TestSwitchedModesRunAndLeaveNothing",
	"TestAKilledLabLeavesNothingFrozen",
	"TestAnInterruptWhileFrozenLeavesNothing",
	"TestAFullDiskLeavesNothing",
	"TestAStoppedExperimentGoesOn",
}

func inTurn(t *testing.T) {
	t.Helper()
	turn.Skip(t, 4, inTurns)
}
