package cgroup

import (
	"strings"
	"testing"
)

func FuzzNext(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x40\x00\x00\x00\x00\x10\x00\x00\x00name\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\x00\x40\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, events []byte) {
		for len(events) > 0 {
			e, rest := nextEvent(events)
			if len(rest) >= len(events) || strings.Contains(e.Name, "\x00") {
				t.Fatalf("%+v leaves %d of %d bytes", e, len(rest), len(events))
			}
			events = rest
		}
	})
}
