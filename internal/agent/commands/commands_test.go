package commands

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestARequestEndsWithTheTickThatAppliesIt adds a request. A tick that began
// earlier must not end it, and neither must a tick that could not read the
// node. The request must get the result of the tick that applied it.
func TestARequestEndsWithTheTickThatAppliesIt(t *testing.T) {
	var q Queue
	refused := errors.New("refused")
	q.Begin()
	done := q.Add()
	q.End(true, nil) // began before the request
	q.Begin()
	q.End(false, nil) // could not read the node
	if len(done) > 0 {
		t.Fatal("the request has ended before a tick applied it")
	}
	q.Begin()
	q.End(true, refused)
	if err := Wait(t.Context(), done, "a size is set"); !errors.Is(err, refused) {
		t.Errorf("the outcome is %v, want %v", err, refused)
	}
}

// TestARequestThatNoTickAppliesSaysSo checks the error if ctx ends before any
// tick.
func TestARequestThatNoTickAppliesSaysSo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var q Queue
	if err := Wait(ctx, q.Add(), "a size is set"); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "a size is set, but no tick") {
		t.Errorf("the error is %v", err)
	}
}

// TestAnIncompleteFileIsNotLeft checks that the old file remains if a value
// cannot be written.
func TestAnIncompleteFileIsNotLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := Save(path, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, func() {}); err == nil {
		t.Error("a function was saved")
	}
	if err := os.Mkdir(path+".next", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, map[string]int{"a": 2}); err == nil {
		t.Error("the new file could not be written, and Save reports no error")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != `{"a":1}` {
		t.Errorf("the file has %q, %v", text, err)
	}
}
