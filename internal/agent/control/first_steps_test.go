package control

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestTheFirstStepsShowAnExplanation explains the bound of a batch job. Its last
// part must stand in docs/first-steps.md.
func TestTheFirstStepsShowAnExplanation(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(addWrite(measuredTick(time.Second, 800), nil), nil)
	l.Observe(measuredTick(64*time.Second, 800), nil)
	e, err := l.ExplainWorkload("job.service")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(e.String(), "\nbatch.slice cpu.max\n")
	shown, _, _ = strings.Cut(shown, "  last")
	page, err := os.ReadFile("../../../docs/first-steps.md")
	if !found || err != nil || !strings.Contains(string(page), "```\nbatch.slice cpu.max\n"+shown+"```\n") {
		t.Errorf("docs/first-steps.md does not show (%v)\n%s", err, e)
	}
}
