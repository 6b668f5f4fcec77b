package load

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestPagesAreDrawnAtRandomAndTheSameAgain(t *testing.T) {
	const pages = 20
	asked := func(seed uint64) (order []string) {
		var mu sync.Mutex
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.URL.Path)
			fmt.Fprint(w, "ok")
		}))
		defer server.Close()
		own, err := ownCPUs()
		if err != nil {
			t.Fatal(err)
		}
		for first := range own.All() {
			c := Config{URL: server.URL + "/p", Pages: pages, Rate: 1000, Duration: 300 * time.Millisecond, Connections: 4, Spin: shared, Seed: seed}
			c.CPUs = c.CPUs.With(first)
			if _, err := Run(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			break
		}
		return order
	}
	count := func(order []string) map[string]int {
		counts := map[string]int{}
		for _, p := range order {
			counts[p]++
		}
		return counts
	}
	first, again, other := count(asked(1)), count(asked(1)), count(asked(2))
	if len(first) != pages {
		t.Errorf("%d of %d pages were requested: %v", len(first), pages, first)
	}
	for p := range first {
		if !strings.HasPrefix(p, "/p") {
			t.Errorf("path %q", p)
		}
	}
	if !maps.Equal(first, again) {
		t.Errorf("the same seed requests other pages: %v, %v", first, again)
	}
	if maps.Equal(first, other) {
		t.Errorf("another seed requests the same pages: %v", slices.Sorted(maps.Keys(first)))
	}
}

func TestTooManyPagesAreRefused(t *testing.T) {
	if _, err := Run(t.Context(), Config{URL: "http://127.0.0.1:1/", Rate: 1, Duration: time.Second, Pages: -1}); err == nil || !strings.Contains(err.Error(), "-1 pages") {
		t.Errorf("error %v", err)
	}
}
