package harness

import (
	"strings"
	"testing"
	"time"
)

// TestThePlanSaysHowLongItTakesAndWhatItCannotDecide checks the lines that an
// experiment prints before its first run.
func TestThePlanSaysHowLongItTakesAndWhatItCannotDecide(t *testing.T) {
	few := func(blocks int) string { return Decides(blocks, "--blocks, or --until-resolved") }
	for name, c := range map[string]struct {
		blocks  int
		whole   time.Duration
		most    time.Duration
		decides func(int) string
		want    []string
	}{
		"many blocks":       {30, 0, 0, few, []string{"30 blocks of 3 runs: about 15:00, and longer if runs are void"}},
		"too few blocks":    {5, 0, 0, few, []string{"5 blocks of 3 runs: about 2:30,", "5 blocks can decide nothing", "(--blocks, or --until-resolved)"}},
		"too little time":   {30, 0, 3 * time.Minute, few, []string{"30 blocks of 3 runs: about 15:00,", "at most 3:00: time for about 6 blocks", "6 blocks can decide nothing"}},
		"enough time":       {30, 0, 20 * time.Minute, few, []string{"about 15:00, and longer if runs are void, at most 20:00"}},
		"until resolved":    {0, 0, 0, few, []string{"each block has 3 runs and takes about 0:30"}},
		"no more than that": {0, 0, 2 * time.Minute, few, []string{"at most 2:00: time for about 4 blocks", "4 blocks can decide nothing"}},
		"a length of all":   {12, 20 * time.Minute, 0, nil, []string{"12 blocks of 3 runs: about 20:00"}},
	} {
		s := &Series[int, int]{Cells: []int{1, 2, 3}, Blocks: c.blocks, First: 10 * time.Second, Whole: c.whole, Decides: c.decides}
		if c.most > 0 {
			s.end = time.Now().Add(c.most + 400*time.Millisecond)
		}
		got := strings.Join(s.plan(), "\n")
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q lacks %q", name, got, want)
			}
		}
		if nothing := "can decide nothing"; strings.Contains(got, nothing) != strings.Contains(strings.Join(c.want, " "), nothing) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWhatBlocksDecide(t *testing.T) {
	for blocks, want := range map[int]string{
		0:   "0 blocks can decide nothing",
		1:   "1 block can decide nothing",
		11:  "11 blocks can decide nothing: the report will have intervals and no verdict. A verdict needs 12 blocks (--blocks)",
		12:  "12 blocks can decide large differences only, by a factor above 1.56. Smaller ones need 30 blocks or more (--blocks)",
		29:  "Smaller ones need 30 blocks or more",
		30:  "",
		100: "",
	} {
		if got := Decides(blocks, "--blocks"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%d blocks: %q, want %q", blocks, got, want)
		}
	}
}
