package testbed

import (
	"fmt"
	"io"
	"sync"
)

// A Status shows progress to the user. On a terminal it is one line that is
// updated. Otherwise it is several lines.
type Status struct {
	W        io.Writer
	terminal bool

	mu   sync.Mutex
	open bool // the line on the terminal has text
}

// Now shows the current activity. On a terminal the next call replaces it.
func (s *Status) Now(format string, args ...any) {
	s.print(false, fmt.Sprintf(format, args...))
}

// Keep prints a line that stays visible.
func (s *Status) Keep(format string, args ...any) {
	s.print(true, fmt.Sprintf(format, args...))
}

func (s *Status) print(keep bool, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		fmt.Fprintln(s.W, text)
		return
	}
	fmt.Fprintf(s.W, "\r\033[K%s", text)
	s.open = !keep
	if keep {
		fmt.Fprintln(s.W)
	}
}

// Clear ends the line that is updated.
func (s *Status) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		fmt.Fprint(s.W, "\r\033[K")
		s.open = false
	}
}
