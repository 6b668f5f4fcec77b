package socket

import (
	"testing"
	"time"
)

func TestSleepEndsWithinItsTime(t *testing.T) {
	for name, coarse := range map[string]bool{"epoll_pwait2": false, "older kernels": true} {
		p, err := NewPoller()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		p.coarse = coarse
		// A signal to the thread may end a sleep early.
		begin, naps := time.Now(), 0
		for ; time.Since(begin) < 20*time.Millisecond; naps++ {
			p.Sleep(2 * time.Millisecond)
		}
		if naps > 100 {
			t.Errorf("%s: %d sleeps of 2 ms in 20 ms", name, naps)
		}
	}
}
