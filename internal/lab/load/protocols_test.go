package load

import (
	"bufio"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/load/fate"
	"tenon.sh/tenon/internal/lab/load/protocol"
)

var protocols = map[string]behaviour{
	"redis":     {scheme: "redis", speak: speakRedis},
	"memcached": {scheme: "memcached", speak: speakMemcached},
	"postgres":  {scheme: "postgres", speak: speakPostgres},
}

// TestProtocolsAreInOpenLoop uses servers that do not answer for a sixth of
// the run.
func TestProtocolsAreInOpenLoop(t *testing.T) {
	for name, b := range protocols {
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
			if err != nil {
				t.Fatal(err)
			}
			// On a busy machine, Latency leaves out many of the requests that the
			// stall held (function stalls).
			if all := r.WithStalls; all.P99 < 120e3 || all.P90 < 30e3 || r.Completed != r.Scheduled {
				t.Errorf("P90 %.0f, P99 %.0f µs, %d of %d answered, of a 200 ms stall that every sixth request met; void: %q", all.P90, all.P99, r.Completed, r.Scheduled, r.Void)
			}
		})
	}
}

func TestErrorsOfProtocolsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		scheme, get string
		errors      func(fate.Errors) int64
	}{
		"redis that loads":       {"redis", "-LOADING dataset\r\n", func(e fate.Errors) int64 { return e.Status }},
		"memcached out of space": {"memcached", "SERVER_ERROR out of memory\r\n", func(e fate.Errors) int64 { return e.Status }},
		"postgres without table": {"postgres", postgresMessage("E", "VERROR\x00C42P01\x00Mno such table\x00\x00") + postgresMessage("Z", "I"), func(e fate.Errors) int64 { return e.Status }},
		"not postgres":           {"postgres", "HTTP/1.1 400 Bad Request\r\n\r\n", func(e fate.Errors) int64 { return e.Answer }},
		"not redis":              {"redis", "HTTP/1.1 400 Bad Request\r\n\r\n", func(e fate.Errors) int64 { return e.Answer }},
	} {
		t.Run(name, func(t *testing.T) {
			b := protocols[c.scheme]
			plain, seen := b.speak, atomic.Bool{}
			b.speak = func(in *bufio.Reader) (string, error) {
				answer, err := plain(in)
				// The answer to a get or a query. The one before the run is good.
				if strings.Contains(answer, "ok") && (c.scheme != "postgres" || seen.Swap(true)) {
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
		"redis":                  {protocols["redis"], ""},
		"memcached":              {protocols["memcached"], ""},
		"postgres":               {protocols["postgres"], ""},
		"postgres without table": {answering(postgresMessage("E", "VERROR\x00C42P01\x00Mno such table\x00\x00") + postgresMessage("Z", "I")), `it answers "ERROR 42P01: no such table"`},
		"http":                   {behaviour{}, ""},
		"http that is not":       {behaviour{answer: "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"}, `it answers "503"`},
		"redis that loads": {behaviour{scheme: "redis", speak: func(in *bufio.Reader) (string, error) {
			_, err := speakRedis(in)
			return "-LOADING dataset\r\n", err
		}}, `it answers "LOADING dataset"`},
		"hung up": {behaviour{scheme: "memcached", speak: func(in *bufio.Reader) (string, error) { return "", nil }, hangUpAfter: 1}, "read the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			err := protocol.Ready(t.Context(), newServer(t, c.server).url)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestURLsOfOtherServicesAreRefused(t *testing.T) {
	for _, bad := range []string{"", "ftp://host/", "redis://", "redis://user@host", "redis://host/3", "memcached:host", "https://host/", "rediss://host", "localhost:8000", "http:///x", "127.0.0.1:80", "redis://host?x=1", "http://user@host/", "postgres://host/db", "postgres://user@host"} {
		if err := protocol.Check(bad); err == nil || !strings.Contains(err.Error(), "redis://HOST[:PORT]") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	for _, good := range []string{"http://h", "http://[::1]:80/x?y", "redis://h:1", "memcached://h/", "postgres://u@h/db?query=SELECT%201", "postgres://u@h:5432/db?query=SELECT%20%27a@b%27", "http://h:80/a@b:c"} {
		if err := protocol.Check(good); err != nil {
			t.Error(err)
		}
	}
}

// TestNoMessageShowsAPassword has URLs with a password, right and wrong in other ways.
// The load sends no password, so it refuses them.
func TestNoMessageShowsAPassword(t *testing.T) {
	for _, bad := range []string{
		"http://user:secret@host/", "http://:secret@host/x?y", "https://user:secret@host/", "ftp://user:secret@host/", "redis://:secret@host", "memcached://u:secret@host",
		"postgres://user:secret@host/db", "http://user:secret@host:99999/", "http://user:secret%@host/", "http://user:secret#x@host/", "http://user:@secret@host/", "user:secret@host",
		"http://user:secret@", "http://user:a/secret@host/", "user:a/b@secret@host", "//user:secret@host/",
	} {
		_, err := Run(t.Context(), Config{URL: bad, Rate: 1, Duration: time.Second})
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "http://HOST[:PORT]") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	if err := protocol.Check("http://user:secret@host/x"); err == nil || !strings.Contains(err.Error(), `url "http://user:xxxxx@host/x": the load sends no password: want http://`) {
		t.Errorf("error %v", err)
	}
}

// answering returns a PostgreSQL server that has one answer to all queries.
func answering(query string) behaviour {
	return behaviour{scheme: "postgres", speak: func(in *bufio.Reader) (string, error) {
		answer, err := speakPostgres(in)
		if strings.Contains(answer, "ok") {
			answer = query
		}
		return answer, err
	}}
}

// greetingWith returns a PostgreSQL server. On each connection after the first
// n, it gives the answer to the first message.
func greetingWith(n int64, answer string, hangUp bool) behaviour {
	var seen atomic.Int64
	return behaviour{scheme: "postgres", speak: func(in *bufio.Reader) (string, error) {
		good, err := speakPostgres(in)
		if strings.HasPrefix(good, "R") && seen.Add(1) > n {
			if hangUp {
				err = io.EOF
			}
			return answer, err
		}
		return good, err
	}}
}

func TestAConnectionThatIsRefusedIsOneClearError(t *testing.T) {
	full := postgresMessage("E", "VFATAL\x00C53300\x00Msorry, too many clients already\x00\x00")
	for name, c := range map[string]struct {
		server behaviour
		want   string
	}{
		"password":       {greetingWith(0, postgresMessage("R", "\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00"), false), "PostgreSQL asks for SCRAM, and this client has no password"},
		"no table":       {answering(postgresMessage("E", "VERROR\x00C42P01\x00Mno such table\x00\x00") + postgresMessage("Z", "I")), `it answers "ERROR 42P01: no such table"`},
		"too many":       {greetingWith(8, full, false), `it answers "FATAL 53300: sorry, too many clients already"`},
		"hung up":        {greetingWith(8, "", true), "the service refuses the first message"},
		"error, no exit": {greetingWith(8, postgresMessage("E", "VERROR\x00\x00")+postgresMessage("Z", "I"), false), "the service refuses the first message"},
		"silent":         {greetingWith(8, postgresMessage("R", "\x00\x00\x00\x00"), false), "no answer to the first message within 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Run(t.Context(), Config{URL: newServer(t, c.server).url, Rate: 500, Duration: 300 * time.Millisecond, Connections: 20, Timeout: time.Second, Spin: shared})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestAClosedConnectionIsGreetedAgain uses a server that closes idle
// connections.
func TestAClosedConnectionIsGreetedAgain(t *testing.T) {
	b := protocols["postgres"]
	b.idleClose = 100 * time.Millisecond
	r, err := Run(t.Context(), Config{URL: newServer(t, b).url, Rate: 20, Duration: 1200 * time.Millisecond, Connections: 10, Spin: shared, Arrival: Constant})
	if err != nil {
		t.Fatal(err)
	}
	if r.Reconnects == 0 || r.Errors.Connect != 0 || r.Completed < r.Scheduled/2 {
		t.Errorf("%d reconnects, %+v", r.Reconnects, r.Counts)
	}
}
