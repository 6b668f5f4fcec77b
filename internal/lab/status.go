package lab

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// A status tells the user what goes on: one line that is updated on a
// terminal, plain lines elsewhere.
type status struct {
	w        io.Writer
	terminal bool

	mu   sync.Mutex
	open bool // the terminal's line has text
}

// Now says what goes on at present; on a terminal the next one replaces it.
func (s *status) Now(format string, args ...any) {
	s.print(false, fmt.Sprintf(format, args...))
}

// Keep says something that must stay readable.
func (s *status) Keep(format string, args ...any) {
	s.print(true, fmt.Sprintf(format, args...))
}

func (s *status) print(keep bool, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		fmt.Fprintln(s.w, text)
		return
	}
	fmt.Fprintf(s.w, "\r\033[K%s", text)
	s.open = !keep
	if keep {
		fmt.Fprintln(s.w)
	}
}

// Clear ends the updated line.
func (s *status) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		fmt.Fprint(s.w, "\r\033[K")
		s.open = false
	}
}

// An eta tells how long the rest will take, from how long runs took.
type eta struct {
	begun time.Time
	done  int // runs
}

// left estimates the time for n more runs; first is the guess for one before
// any has been timed.
func (e eta) left(n int, first time.Duration) time.Duration {
	if e.done > 0 {
		first = time.Since(e.begun) / time.Duration(e.done)
	}
	return (time.Duration(n) * first).Round(time.Second)
}

// clock prints d as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
