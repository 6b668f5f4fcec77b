package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/machine/statedir"
)

// TestAKilledTenondHasSavedThePeaks kills tenond when it has learnt once. The next tenond
// learns on, and does not begin anew. They learn once a minute.
func TestAKilledTenondHasSavedThePeaks(t *testing.T) {
	if os.Getenv("TENON_TEST_LONG") != "1" {
		t.Skip("it takes more than two minutes: set TENON_TEST_LONG=1")
	}
	s := plantSite(t, generous+"colocation-config: {enable: true, peakPrediction: {enable: true}}\n")
	file := filepath.Join(s.state, statedir.PeaksFile)
	watched := func() time.Duration {
		var saved struct {
			Peaks struct {
				Past map[string]struct {
					Watched time.Duration `json:"watched_ns"`
				} `json:"past"`
			} `json:"peaks"`
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &saved)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return saved.Peaks.Past[string(s.path(service))].Watched
	}
	d := s.tenond()
	eventuallyIn(t, 3*time.Minute, "tenond saves the peak of the service", func() bool { return watched() > 0 })
	d.signal(syscall.SIGKILL)
	<-d.end
	first := watched()
	d = s.tenond()
	eventuallyIn(t, 3*time.Minute, "the next tenond learns on", func() bool { return watched() != first })
	if last := watched(); last < first+time.Minute {
		t.Errorf("the service was watched for %v, and before the kill for %v", last, first)
	}
	d.stop()
	s.restore()
}
