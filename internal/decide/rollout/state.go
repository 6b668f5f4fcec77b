package rollout

import (
	"errors"
	"fmt"
	"math"
)

func wentBack(c Code) bool { return c == Harm || c == Price || c == GivesUp }

func (s State) isZero() bool {
	c := s.Config
	return c.Margin == 0 && len(c.Shares) == 0 && c.Epoch == 0 && c.Attempt == 0 &&
		s.Seed == 0 && s.Phase == "" && s.Begun.IsZero() && s.Since.IsZero() && s.Swapped.IsZero() &&
		s.Stage == 0 && s.Drawn == 0 && s.Half == 0 && s.Blocks == 0 && s.Looks == 0 &&
		len(s.Pairs)+len(s.Logs)+len(s.Services)+len(s.Verdicts) == 0
}

// Check returns why a stored State cannot be one that Step has made, or nil.
func (s State) Check() error {
	if s.isZero() {
		return nil // it has not begun
	}
	if err := s.Config.Check(); err != nil {
		return err
	}
	running := s.Phase == Compares
	switch {
	case !running && s.Phase != Done && s.Phase != Back:
		return fmt.Errorf("phase %.20q", s.Phase)
	case s.Begun.IsZero() || s.Since.Before(s.Begun):
		return errors.New("it began later than its stage")
	case s.Stage < 0 || s.Stage >= len(s.Config.Shares):
		return fmt.Errorf("stage %d of %d", s.Stage, len(s.Config.Shares))
	case s.Half != 0 && s.Half != 1, !running && len(s.Pairs) > 0, len(s.Pairs) > 0 && s.Swapped.IsZero():
		return errors.New("a block that cannot be")
	case s.Drawn < s.Blocks || s.Blocks < 0 || len(s.Logs) < s.Blocks || s.Blocks == 0 && len(s.Logs) > 0:
		return fmt.Errorf("%d values of %d blocks, of %d", len(s.Logs), s.Blocks, s.Drawn)
	case s.Looks < 0 || s.Looks > 0 && lookAt(s.Looks) > s.Blocks || running && lookAt(s.Looks+1) <= s.Blocks:
		return fmt.Errorf("%d looks at %d blocks", s.Looks, s.Blocks)
	case len(s.Verdicts) == 0 || s.Verdicts[0].Code != Begins:
		return errors.New("it has no begin")
	}
	last := s.Verdicts[len(s.Verdicts)-1].Code
	if ends := last == Finishes || wentBack(last); running && ends || s.Phase == Done && last != Finishes || s.Phase == Back && !wentBack(last) {
		return fmt.Errorf("phase %s after the verdict %.20q", s.Phase, last)
	}
	for _, v := range s.Logs {
		if math.IsNaN(v) || math.Abs(v) > 100 {
			return fmt.Errorf("a ratio of e^%v", v)
		}
	}
	seen := map[string]bool{}
	for _, p := range s.Pairs {
		for _, name := range p {
			if name == "" || seen[name] {
				return fmt.Errorf("node %.80q is twice in a block", name)
			}
			seen[name] = true
		}
	}
	for name, l := range s.Services {
		if min(l.On.Waits, l.Off.Waits) < 0 || min(l.On.Waited, l.Off.Waited, l.OffFor) < 0 || l.Nodes < 0 {
			return fmt.Errorf("service %.80q has waits below 0", name)
		}
	}
	return nil
}
