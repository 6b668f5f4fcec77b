package site

import (
	"fmt"
	"io"
	"sync"
)

// A Status shows progress to the user: one line that is updated on a terminal,
// plain lines elsewhere.
type Status struct {
	W        io.Writer
	terminal bool

	mu   sync.Mutex
	open bool // the terminal's line has text
}

// Now shows the present activity; on a terminal the next one replaces it.
func (s *Status) Now(format string, args ...any) {
	s.print(false, fmt.Sprintf(format, args...))
}

// Keep says something that must stay readable.
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

// Clear ends the updated line.
func (s *Status) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		fmt.Fprint(s.W, "\r\033[K")
		s.open = false
	}
}
