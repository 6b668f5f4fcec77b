package listen

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// freshFor is the time for which a page of metrics is sent again. So clients
	// cannot make a program spend its CPU time on pages.
	freshFor = time.Second
	// maxPages is the maximum number of kept pages. Clients that accept different
	// formats get different pages.
	maxPages = 4
)

// Pages serves pages of metrics, which it makes one at a time. Clients that ask
// for the same page share its memory, however slowly they read it.
type Pages struct {
	// Render writes a page.
	Render http.Handler
	// Turn returns a number that changes when a kept page is too old. It may be nil.
	Turn func() uint64

	mu   sync.Mutex
	kept map[string]*page
}

// A page is an answer to a request for metrics. It implements
// http.ResponseWriter.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
	turn   uint64
	at     time.Time
}

func (p *page) Header() http.Header            { return p.header }
func (p *page) WriteHeader(status int)         { p.status = status }
func (p *page) Write(text []byte) (int, error) { return p.body.Write(text) }

// ServeHTTP sends a page.
func (s *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := s.page(r)
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body.Bytes()) // an error means that the client has gone
}

// page returns the page for a request: a kept one, or a new one.
func (s *Pages) page(r *http.Request) *page {
	key := strings.Join([]string{r.Method, r.URL.RawQuery, strings.Join(r.Header.Values("Accept"), ","), strings.Join(r.Header.Values("Accept-Encoding"), ",")}, "\n")
	s.mu.Lock()
	defer s.mu.Unlock()
	turn, now := uint64(0), time.Now()
	if s.Turn != nil {
		turn = s.Turn()
	}
	if p := s.kept[key]; p != nil && p.turn == turn && now.Sub(p.at) < freshFor {
		return p
	}
	p := &page{header: http.Header{}, status: http.StatusOK, turn: turn, at: now}
	s.Render.ServeHTTP(p, r)
	if len(s.kept) >= maxPages || s.kept == nil {
		s.kept = map[string]*page{}
	}
	s.kept[key] = p
	return p
}
