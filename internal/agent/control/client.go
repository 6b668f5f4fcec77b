package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrNotRunning means that no agent answers on the socket.
var ErrNotRunning = errors.New("tenond is not running: start it with sudo systemctl start tenond, or sudo tenond --config FILE")

// A Client sends requests to the agent of a state directory.
type Client struct {
	path string
	http http.Client
	wait time.Duration // longest wait until a request takes effect
}

// NewClient returns a client. It opens a connection for each request.
func NewClient(stateDir string) *Client {
	path := SocketPath(stateDir)
	return &Client{path: path, wait: maxWait, http: http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}}
}

// Status returns the agent's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return Ask[Status](ctx, c, http.MethodGet, "status", nil)
}

// ExplainWorkload explains a workload or a cgroup. If neither has this name,
// the error is *Unknown.
func (c *Client) ExplainWorkload(ctx context.Context, name string) (Explanation, error) {
	return Ask[Explanation](ctx, c, http.MethodGet, "explain", url.Values{"workload": {name}})
}

// ExplainKnob explains a knob, given as a text for ParseKnob.
func (c *Client) ExplainKnob(ctx context.Context, knob string) (Explanation, error) {
	return Ask[Explanation](ctx, c, http.MethodGet, "explain", url.Values{"knob": {knob}})
}

// Follow passes the status after each tick to see. It returns when ctx or the agent ends.
func (c *Client) Follow(ctx context.Context, see func(Status)) error {
	body, err := c.do(ctx, http.MethodGet, "ticks", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := json.NewDecoder(bufio.NewReader(body))
	for {
		var s Status
		err := lines.Decode(&s)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("tenond has stopped")
		case err != nil:
			return fmt.Errorf("follow tenond: %w", err)
		}
		see(s)
	}
}

// Ask sends a request to the agent and reads its answer.
func Ask[T any](ctx context.Context, c *Client, method, what string, about url.Values) (T, error) {
	var to T
	body, err := c.do(ctx, method, what, about)
	if err != nil {
		return to, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&to); err != nil {
		return to, fmt.Errorf("ask tenond for its %s: %w", what, err)
	}
	return to, nil
}

// do sends a request and returns the body of a successful answer.
func (c *Client) do(ctx context.Context, method, what string, about url.Values) (io.ReadCloser, error) {
	// The host name is ignored: all connections go to the socket.
	u := url.URL{Scheme: "http", Host: "tenond", Path: "/v1/" + what, RawQuery: about.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask tenond for its %s: %w", what, err)
	}
	response, err := c.http.Do(request)
	if of := (*url.Error)(nil); errors.As(err, &of) {
		err = of.Err // the user knows the socket, not the URL
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w (nothing answers on %s)", ErrNotRunning, c.path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("connect to %s: only root may: %w", c.path, os.ErrPermission)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("connect to %s: %s is not a directory: want the state directory of tenond", c.path, filepath.Dir(c.path))
	case err != nil:
		return nil, fmt.Errorf("ask tenond for its %s: %w", what, err)
	case response.StatusCode == http.StatusOK:
		return response.Body, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	var no refusal
	if err != nil || json.Unmarshal(text, &no) != nil {
		return nil, fmt.Errorf("ask tenond for its %s: %s: %s", what, response.Status, text)
	}
	if response.StatusCode == http.StatusNotFound {
		return nil, &Unknown{Name: no.Name, Known: no.Known}
	}
	return nil, errors.New(no.Error)
}
