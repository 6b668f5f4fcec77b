package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestApplyWaitsForTheWebhook checks that Apply tries again if the webhook cannot
// be reached. If the webhook refuses, Apply must return the refusal at once.
func TestApplyWaitsForTheWebhook(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	s := Space{Client: fake(t, `echo >> `+count+`; [ $(wc -l < `+count+`) = 2 ] || { echo 'failed calling webhook "be.mutate.tenon.sh": no endpoints' >&2; exit 1; }`)}
	if err := s.Apply(t.Context(), []Object{{}}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(count); err != nil || len(text) != 2 {
		t.Errorf("asked %d times, %v; want 2", len(text), err)
	}
	s.Client = fake(t, `echo 'denied the request: want either' >&2; exit 1`)
	if err := s.Apply(t.Context(), []Object{{}}); err == nil || !strings.Contains(err.Error(), "want either") {
		t.Errorf("a refusal: %v", err)
	}
}
