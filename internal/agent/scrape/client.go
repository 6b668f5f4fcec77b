package scrape

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// patience is the time for one reading, from the connection to the last byte.
	patience = 2 * time.Second
	// maxAnswer and maxHeader are the longest answer and its longest header.
	maxAnswer = 1 << 20
	maxHeader = 16 << 10
)

// A client reads one service.
type client struct {
	target Target
	url    string
	http   http.Client
}

func newClient(t Target) *client {
	address := net.JoinHostPort(t.Address, strconv.Itoa(t.Want.Port))
	return &client{target: t, url: "http://" + address + t.Want.Path, http: http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			},
			// A compressed answer may be far larger than it looks.
			DisableCompression: true, MaxIdleConns: 1, IdleConnTimeout: 4 * every, MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (c *client) leave() { c.http.CloseIdleConnections() }

// read reads the histogram of the service once.
func (c *client) read(ctx context.Context) node.Requests {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, http.NoBody)
	if err != nil {
		return node.Requests{Trouble: node.TroubleConnect}
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	answer, err := c.http.Do(request)
	if err != nil {
		return node.Requests{Trouble: troubleOf(err)}
	}
	defer answer.Body.Close()
	switch kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type")); {
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		return node.Requests{Trouble: node.TroubleRedirect}
	case answer.StatusCode != http.StatusOK:
		return node.Requests{Trouble: node.TroubleStatus}
	case err != nil, kind != "text/plain", answer.Header.Get("Content-Encoding") != "":
		return node.Requests{Trouble: node.TroubleContent}
	}
	limited := &io.LimitedReader{R: answer.Body, N: maxAnswer + 1}
	got, err := parse(limited, c.target.Want.Series)
	switch {
	case limited.N <= 0:
		return node.Requests{Trouble: node.TroubleTooLarge}
	case err != nil:
		return node.Requests{Trouble: troubleOf(err)}
	}
	return got
}

// A fault is an error with a reason.
type fault node.SourceTrouble

func (f fault) Error() string { return string(f) }

// troubleOf returns the reason why a reading failed.
func troubleOf(err error) node.SourceTrouble {
	if f, is := errors.AsType[fault](err); is {
		return node.SourceTrouble(f)
	}
	if late, is := errors.AsType[net.Error](err); is && late.Timeout() {
		return node.TroubleSlow
	}
	return node.TroubleConnect
}
