package protocol

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A cache (Redis or memcached) has cacheKeys keys with values of cacheValue
// bytes. Of cacheSet requests, one is a set and the others are gets.
const (
	cacheKeys  = 1000
	cacheValue = 512
	cacheSet   = 10
)

// A Target is a prepared URL: its addresses and the requests to send.
type Target struct {
	// Addrs has the addresses of the host, in the order of preference (RFC 6724).
	// Reach selects one of them.
	Addrs    []*net.TCPAddr
	Hello    []byte   // opens each connection, and has an answer; nil: none
	Requests [][]byte // one of them is drawn for each send
	Fill     [][]byte // requests before the run: all keys exist, and a query is right
	Answer   func() Answer
}

// A protocol defines how to send requests to a service. Each kind of URL has
// one.
type protocol struct {
	scheme, form, port string
	ping               string // command whose good answer shows that the service is ready; empty: the first request
	answer             func() Answer
	get, set           func(key string) []byte // of a cache; nil: no cache
	fits               func(u *url.URL) bool   // nil: every URL with a host
	database           bool
}

var protocols = []protocol{
	{scheme: "http", form: "http://HOST[:PORT]/PATH", port: "80", answer: func() Answer { return &HTTP{} },
		fits: func(u *url.URL) bool { return u.User == nil }},
	{scheme: "redis", form: "redis://HOST[:PORT]", port: "6379", ping: "*1\r\n$4\r\nPING\r\n", answer: func() Answer { return &Redis{} }, fits: isBare,
		get: func(key string) []byte { return redisCommand("GET", key) },
		set: func(key string) []byte { return redisCommand("SET", key, strings.Repeat("x", cacheValue)) }},
	{scheme: "memcached", form: "memcached://HOST[:PORT]", port: "11211", ping: "version\r\n", answer: func() Answer { return &Memcached{} }, fits: isBare,
		get: func(key string) []byte { return []byte("get " + key + "\r\n") },
		set: func(key string) []byte {
			return fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", key, cacheValue, strings.Repeat("x", cacheValue))
		}},
	{scheme: "postgres", form: "postgres://USER@HOST[:PORT]/DATABASE[?query=SQL]", port: "5432", ping: string(query("SELECT 1")), answer: func() Answer { return &Postgres{} },
		fits: isDatabase, database: true},
}

// isBare reports whether a URL is only a host and a port.
func isBare(u *url.URL) bool {
	return u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
}

// redisCommand encodes a command as an array of bulk strings.
func redisCommand(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// Check returns an error unless Parse accepts rawURL.
func Check(rawURL string) error {
	_, _, err := parseURL(rawURL)
	return err
}

// parseURL finds the protocol of a URL.
func parseURL(rawURL string) (*url.URL, protocol, error) {
	u, err := url.Parse(rawURL)
	switch {
	case !strings.Contains(rawURL, "://"):
		return nil, protocol{}, fmt.Errorf("url %.200q names no protocol: want %s", shown(rawURL), forms())
	case err != nil && strings.Contains(rawURL, "@"): // err can quote a part of a password
		return nil, protocol{}, fmt.Errorf("url %.200q cannot be parsed: want %s", shown(rawURL), forms())
	case err != nil:
		return nil, protocol{}, err
	case u.Scheme == "https" || u.Scheme == "rediss":
		return nil, protocol{}, fmt.Errorf("url %.200q: the load has no TLS: want %s", shown(rawURL), forms())
	}
	if _, password := u.User.Password(); password {
		return nil, protocol{}, fmt.Errorf("url %.200q: the load sends no password: want %s", shown(rawURL), forms())
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, protocol{}, fmt.Errorf("url %q: port %s: want 1 to 65535", rawURL, port)
		}
	}
	for _, p := range protocols {
		if u.Scheme == p.scheme && u.Hostname() != "" && (p.fits == nil || p.fits(u)) {
			return u, p, nil
		}
	}
	return nil, protocol{}, fmt.Errorf("url %.200q: want %s", rawURL, forms())
}

// shown returns a URL as messages show it: with xxxxx in place of a password. If the
// URL cannot be parsed, it hides all that may be a password.
func shown(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err == nil && u.Opaque == "" && u.Scheme != "" {
		if _, password := u.User.Password(); password {
			return u.Redacted()
		}
		return rawURL
	}
	at := strings.LastIndexByte(rawURL, '@')
	if at < 0 {
		return rawURL
	}
	scheme, _, named := strings.Cut(rawURL[:at], "://")
	if !named {
		return "xxxxx" + rawURL[at:]
	}
	return scheme + "://xxxxx" + rawURL[at:]
}

// forms lists the URLs that Parse accepts.
func forms() string {
	var all []string
	for _, p := range protocols {
		all = append(all, p.form)
	}
	return strings.Join(all, ", ")
}

// Parse prepares the requests to a URL. If pages is above 0, they are HTTP
// requests for random pages.
func Parse(ctx context.Context, rawURL string, pages int) (Target, error) {
	u, p, err := parseURL(rawURL)
	if err != nil {
		return Target{}, err
	}
	port := u.Port()
	if port == "" {
		port = p.port
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, u.Hostname())
	if err != nil {
		return Target{}, fmt.Errorf("url %q: %w", rawURL, err)
	}
	if len(ips) == 0 {
		return Target{}, errors.New("url " + rawURL + ": host has no address")
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return Target{}, fmt.Errorf("url %q: %w", rawURL, err)
	}
	t := Target{Answer: p.answer}
	for _, ip := range ips {
		t.Addrs = append(t.Addrs, &net.TCPAddr{IP: ip.IP, Port: number, Zone: ip.Zone})
	}
	switch {
	case (p.get != nil || p.database) && pages > 0:
		return Target{}, fmt.Errorf("%d pages: %s has none", pages, p.scheme)
	case p.get != nil:
		t.addCache(p)
		return t, nil
	case p.database:
		t.addDatabase(u)
		return t, nil
	}
	request := func(page string) {
		text := "GET " + u.RequestURI() + page + " HTTP/1.1\r\nHost: " + u.Host + "\r\nUser-Agent: tenon\r\nAccept: */*\r\n\r\n"
		t.Requests = append(t.Requests, []byte(text))
	}
	if pages == 0 {
		request("")
	}
	for page := range pages {
		request(strconv.Itoa(page))
	}
	return t, nil
}

// addCache adds the requests to a cache: one set and nine gets for each key.
func (t *Target) addCache(p protocol) {
	for i := range cacheKeys {
		key := "tenon-lab-" + strconv.Itoa(i)
		get, set := p.get(key), p.set(key)
		t.Fill = append(t.Fill, set)
		t.Requests = append(t.Requests, set)
		for range cacheSet - 1 {
			t.Requests = append(t.Requests, get)
		}
	}
}

// Reach returns the first address that accepts a connection, and the connection. It
// waits for each address at most for the given patience. If none accepts, the error
// names all addresses, each with its reason.
func (t *Target) Reach(ctx context.Context, patience time.Duration) (*net.TCPAddr, net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	var failed unreachable
	for _, addr := range t.Addrs {
		c, err := d.DialContext(ctx, "tcp", addr.String())
		if err == nil {
			return addr, c, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, nil, failed
}

// unreachable has the reasons why no address of a host accepts a connection.
type unreachable []error

func (u unreachable) Error() string {
	texts := make([]string, len(u))
	for i, err := range u {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (u unreachable) Unwrap() []error { return u }

// Ask opens a connection, sends requests one after the other, and reads the
// answers.
func (t *Target) Ask(ctx context.Context, requests [][]byte, patience time.Duration) error {
	_, c, err := t.Reach(ctx, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	in, answer := bufio.NewReader(c), t.Answer()
	if t.Hello != nil {
		requests = append([][]byte{t.Hello}, requests...)
	}
	for _, r := range requests {
		answer.Reset()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := c.Write(r); err != nil {
			return err
		}
		for done := false; !done; {
			if _, err := in.Peek(1); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			piece, err := in.Peek(in.Buffered())
			if err != nil {
				return err
			}
			if done, err = answer.Feed(piece); err != nil {
				return err
			}
			if done && answer.Failed() {
				if a, ok := answer.(*Postgres); ok { // its errors are between other messages
					piece = []byte(a.Fault())
				}
				return fmt.Errorf("it answers %.100q", piece)
			}
			if _, err := in.Discard(len(piece)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ready returns nil if the service at a URL answers as expected. The request is GET
// over HTTP, PING for Redis, version for memcached, and SELECT 1 for PostgreSQL.
func Ready(ctx context.Context, rawURL string) error {
	t, err := Parse(ctx, rawURL, 0)
	if err != nil {
		return err
	}
	ping := t.Requests[0]
	if _, p, _ := parseURL(rawURL); p.ping != "" { //nolint:errcheck // Parse has parsed it, too
		ping = []byte(p.ping)
	}
	return t.Ask(ctx, [][]byte{ping}, time.Second)
}
