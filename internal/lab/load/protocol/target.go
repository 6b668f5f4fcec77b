package protocol

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Target is a prepared URL: its addresses, the requests to send, and the parser of
// their answers.
type Target struct {
	Requests
	// Addrs has the addresses of the host, in the order of preference (RFC 6724).
	// Reach selects one of them.
	Addrs  []*net.TCPAddr
	Answer func() Answer
}

// Check returns an error unless Parse accepts rawURL.
func Check(rawURL string) error {
	_, _, err := Find(rawURL)
	return err
}

// Find returns the protocol of a URL, and the URL. It returns an error unless Parse
// accepts the URL.
func Find(rawURL string) (Protocol, *url.URL, error) {
	u, err := url.Parse(rawURL)
	switch {
	case !strings.Contains(rawURL, "://"):
		return Protocol{}, nil, fmt.Errorf("url %.200q names no protocol: want %s", shown(rawURL), forms())
	case err != nil && strings.Contains(rawURL, "@"): // err can quote a part of a password
		return Protocol{}, nil, fmt.Errorf("url %.200q cannot be parsed: want %s", shown(rawURL), forms())
	case err != nil:
		return Protocol{}, nil, err
	case u.Scheme == "https" || u.Scheme == "rediss":
		return Protocol{}, nil, fmt.Errorf("url %.200q: the load has no TLS: want %s", shown(rawURL), forms())
	}
	if _, password := u.User.Password(); password {
		return Protocol{}, nil, fmt.Errorf("url %.200q: the load sends no password: want %s", shown(rawURL), forms())
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return Protocol{}, nil, fmt.Errorf("url %q: port %s: want 1 to 65535", rawURL, port)
		}
	}
	for _, p := range protocols {
		if u.Scheme != p.Scheme || u.Hostname() == "" {
			continue
		}
		if _, fits := p.Requests(u, 0); fits {
			return p, u, nil
		}
	}
	return Protocol{}, nil, fmt.Errorf("url %.200q: want %s", rawURL, forms())
}

// Connections returns the number of connections with which an experiment loads the
// service at a URL, or any service of its scheme.
func Connections(rawURL string) int {
	for _, p := range protocols {
		if p.Connections > 0 && strings.HasPrefix(rawURL, p.Scheme+"://") {
			return p.Connections
		}
	}
	return 256
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
func forms() string { return list(func(p Protocol) string { return p.Form }) }

// Schemes lists the schemes of the URLs, for the help of commands.
func Schemes() string { return list(func(p Protocol) string { return p.Scheme + "://" }) }

// Requested lists what the client sends in each protocol, for the help of commands.
func Requested() string {
	return list(func(p Protocol) string { return p.Sends + " to " + p.Scheme + "://" })
}

// list returns a text about each protocol.
func list(of func(Protocol) string) string {
	var all []string
	for _, p := range protocols {
		all = append(all, of(p))
	}
	return strings.Join(all, ", ")
}

// Parse prepares the requests to a URL. If pages is above 0, they are requests for
// random pages.
func Parse(ctx context.Context, rawURL string, pages int) (Target, error) {
	p, u, err := Find(rawURL)
	if err != nil {
		return Target{}, err
	}
	if pages > 0 && !p.Pages {
		return Target{}, fmt.Errorf("%d pages: %s has none", pages, p.Scheme)
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, u.Hostname())
	if err != nil {
		return Target{}, fmt.Errorf("url %q: %w", rawURL, err)
	}
	if len(ips) == 0 {
		return Target{}, errors.New("url " + rawURL + ": host has no address")
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", cmp.Or(u.Port(), p.Port))
	if err != nil {
		return Target{}, fmt.Errorf("url %q: %w", rawURL, err)
	}
	t := Target{Answer: p.Answer}
	t.Requests, _ = p.Requests(u, pages)
	for _, ip := range ips {
		t.Addrs = append(t.Addrs, &net.TCPAddr{IP: ip.IP, Port: number, Zone: ip.Zone})
	}
	return t, nil
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
			if done {
				if o := answer.Outcome(); o.Failed {
					return fmt.Errorf("it answers %q", o.Refusal)
				}
			}
			if _, err := in.Discard(len(piece)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ready returns nil if the service at a URL answers as expected.
func Ready(ctx context.Context, rawURL string) error {
	t, err := Parse(ctx, rawURL, 0)
	if err != nil {
		return err
	}
	return t.Ask(ctx, [][]byte{t.Ready}, time.Second)
}
