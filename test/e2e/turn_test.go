package e2e

import (
	"testing"

	"tenon.sh/tenon/test/turn"
)

// inTurns are tests of which a third runs for each commit, and in make soak all of
// them. They mostly wait: for the minute of a lease, for work that comes and goes,
// for programs that end. Each kind of fact has tests that run for each commit: a
// tenond that is killed, stopped or restarted, work that is bounded and given back,
// limits that are kept. The guest of test/vm runs those of them that it selects.
var inTurns = []string{
	"TestSlowRequestsBoundTheBatchWorkToBlame",
	"TestSlowAnswersAtTheSocketBoundTheBatchWorkToBlame",
	"TestChaos",
	"TestRestoreAfterKillLeavesNothing",
	"TestTenondFollowsWorkloadsThatComeAndGo",
	"TestTenondOfAClusterOutlastsAPIServerAndKubelet",
	"TestTenondThatKnowsNothingLetsGoOfNothing",
	"TestTenondRestartedKeepsContainersByTheirLabels",
	"TestAStormOfAlarmsCostsLittle",
	"TestTenondIsSmallOnANodeOf110Pods",
	"TestLimitsThatDoNotFitAreNamed",
	"TestTenondWithAFullJournalTouchesNothingNew",
	"TestTenondGoesOnWithoutAFileThatRefuses",
	"TestHealthSaysWhatTheLoopCannotDo",
	"TestTenondAnnouncesItsStop",
	"TestTheWatchdogMayBeAContainerOfItsOwn",
	"TestTenondStartsAnotherWatchdog",
}

func inTurn(t *testing.T) {
	t.Helper()
	turn.Skip(t, 3, inTurns)
}
