package load

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/wire"
)

var caches = map[string]behaviour{
	"redis":     {scheme: "redis", speak: speakRedis},
	"memcached": {scheme: "memcached", speak: speakMemcached},
}

// TestCachesAreAskedInOpenLoop uses servers that do not answer for a sixth of
// the run.
func TestCachesAreAskedInOpenLoop(t *testing.T) {
	for name, b := range caches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.stall, b.stallEvery = 200*time.Millisecond, time.Second
			c := Config{Duration: 1200 * time.Millisecond, Rate: 500, Connections: 150, Spin: shared, Seed: 1}
			s := newServer(t, behaviour{scheme: b.scheme, speak: b.speak})
			c.URL = s.url
			good, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if good.Completed != good.Scheduled || good.Errors.Total() != 0 {
				t.Errorf("%+v", good.Counts)
			}
			c.URL = newServer(t, b).url
			r, err := Run(t.Context(), c)
			// A client that did not get its CPU leaves out requests that the
			// stall held. So repeat such a run.
			for try := 1; err == nil && len(r.Void) > 0 && try < 5; try++ {
				r, err = Run(t.Context(), c)
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Latency.P99 < 120e3 || r.Latency.P90 < 30e3 || r.Completed != r.Scheduled {
				t.Errorf("P90 %.0f, P99 %.0f µs, %d of %d answered, of a 200 ms stall that every sixth request met; void: %q", r.Latency.P90, r.Latency.P99, r.Completed, r.Scheduled, r.Void)
			}
		})
	}
}

func TestErrorsOfCachesAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		scheme, get string
		errors      func(Errors) int64
	}{
		"redis that loads":       {"redis", "-LOADING dataset\r\n", func(e Errors) int64 { return e.Status }},
		"memcached out of space": {"memcached", "SERVER_ERROR out of memory\r\n", func(e Errors) int64 { return e.Status }},
		"not redis":              {"redis", "HTTP/1.1 400 Bad Request\r\n\r\n", func(e Errors) int64 { return e.Read }},
	} {
		t.Run(name, func(t *testing.T) {
			b := caches[c.scheme]
			plain := b.speak
			b.speak = func(in *bufio.Reader) (string, error) {
				answer, err := plain(in)
				if strings.Contains(answer, "ok") { // an answer to a get
					answer = c.get
				}
				return answer, err
			}
			r, err := Run(t.Context(), Config{URL: newServer(t, b).url, Rate: 500, Duration: 300 * time.Millisecond, Connections: 20, Spin: shared})
			if err != nil {
				t.Fatal(err)
			}
			if n := c.errors(r.Errors); n == 0 || n != r.Errors.Total() || n+r.Completed != r.Scheduled || len(r.Void) == 0 {
				t.Errorf("%+v, void %q", r.Counts, r.Void)
			}
		})
	}
}

func TestAServiceIsReadyWhenItAnswersWell(t *testing.T) {
	for name, c := range map[string]struct {
		server behaviour
		want   string
	}{
		"redis":            {caches["redis"], ""},
		"memcached":        {caches["memcached"], ""},
		"http":             {behaviour{}, ""},
		"http that is not": {behaviour{answer: "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"}, "it answers \"HTTP/1.1 503 Busy"},
		"redis that loads": {behaviour{scheme: "redis", speak: func(in *bufio.Reader) (string, error) {
			_, err := speakRedis(in)
			return "-LOADING dataset\r\n", err
		}}, "it answers \"-LOADING dataset"},
		"hung up": {behaviour{scheme: "memcached", speak: func(in *bufio.Reader) (string, error) { return "", nil }, hangUpAfter: 1}, "read the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			err := wire.Ready(t.Context(), newServer(t, c.server).url)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestURLsOfOtherServicesAreRefused(t *testing.T) {
	for _, bad := range []string{"", "ftp://host/", "redis://", "redis://user@host", "redis://host/3", "memcached:host", "http:///x", "127.0.0.1:80", "redis://host?x=1"} {
		if err := wire.Check(bad); err == nil || !strings.Contains(err.Error(), "redis://HOST[:PORT]") && !strings.Contains(err.Error(), "first path segment") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	for _, good := range []string{"http://h", "http://[::1]:80/x?y", "redis://h:1", "memcached://h/"} {
		if err := wire.Check(good); err != nil {
			t.Error(err)
		}
	}
}
