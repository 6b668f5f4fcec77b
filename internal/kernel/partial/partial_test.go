package partial

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestSplitSeparatesMissesFromOtherErrors(t *testing.T) {
	a, b := &Error{}, &Error{}
	a.Add("x/y", fmt.Errorf("list x/y: %w", syscall.EACCES))
	a.Add("x/y", syscall.EIO) // named once
	b.Add("z", syscall.EIO)
	other := errors.New("other")
	missed, rest := Split(errors.Join(fmt.Errorf("walk: %w", a), errors.Join(b, nil), other))
	if missed == nil || len(missed.Misses) != 2 || !errors.Is(rest, other) || Is(errors.Join(a, other)) || !Is(errors.Join(a, b)) {
		t.Errorf("%v, %v", missed, rest)
	}
	if got, want := missed.Error(), "cannot read the cgroup x/y and those below it: permission denied, and the cgroup z and those below it: input/output error"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !missed.MayHide("x/y") || !missed.MayHide("x/y/z") || missed.MayHide("x/yy") || missed.MayHide("x") {
		t.Error("MayHide is wrong")
	}
	wrapped := fmt.Errorf("%w: %w", other, syscall.ENOENT)
	if missed, rest := Split(wrapped); missed != nil || !errors.Is(rest, wrapped) || Is(nil) || (*Error)(nil).OrNil() != nil {
		t.Errorf("%v, %v", missed, rest)
	}
}

func TestAMessageNamesFewOfManyMisses(t *testing.T) {
	e := &Error{}
	for i := range 1000 {
		e.Add(fmt.Sprintf("%s/%d", strings.Repeat("d", 4000), i), syscall.ENAMETOOLONG)
	}
	if len(e.Misses) != maxMisses || e.More != 1000-maxMisses || len(e.Error()) > 1500 || !strings.HasSuffix(e.Error(), ", and 997 more") {
		t.Errorf("%d misses and %d more: %s", len(e.Misses), e.More, e.Error())
	}
	if !e.MayHide("anything") {
		t.Error("a miss that has no name may hide anything")
	}
}
