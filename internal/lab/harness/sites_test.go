package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/testbed"
)

// TestAnExperimentWithoutCellsMakesNoFolder enters one of two sites. No cell can run
// there, so the error has every reason, and no folder is made.
func TestAnExperimentWithoutCellsMakesNoFolder(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	machine := func(context.Context, string) (*testbed.Site, error) { return nil, os.ErrPermission }
	pods := func(_ context.Context, out string) (*testbed.Site, error) {
		return &testbed.Site{Given: testbed.Setting{Out: out}, Status: &testbed.Status{}}, nil
	}
	if _, err := Enter(t.Context(), out, false, machine, pods); !errors.Is(err, os.ErrPermission) {
		t.Errorf("on this machine: %v", err)
	}
	s, err := Enter(t.Context(), out, true, machine, pods)
	if err != nil {
		t.Fatal(err)
	}
	cells, refused := Choose([]int{1, 2, 3}, func(n int) (any, string) { return n % 2, fmt.Sprint("odd or even: ", n%2) })
	if want := []string{"1: odd or even: 1", "0: odd or even: 0"}; len(cells) > 0 || !slices.Equal(refused, want) {
		t.Errorf("cells %v, refused %q, want %q", cells, refused, want)
	}
	if _, err := (&Series[int, int]{Site: s, Cells: cells, Refused: refused}).Conduct(t.Context()); err == nil || !strings.HasSuffix(err.Error(), strings.Join(refused, "\n")) {
		t.Errorf("the series: %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the results: %v", err)
	}
}
