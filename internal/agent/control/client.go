package control

import (
	"bufio"
	"cmp"
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

const (
	// answerPatience is the longest wait for an answer. The agent answers from
	// memory, except that a request may wait for maxWait until it takes effect.
	answerPatience = 2 * maxWait
	// tickPatience is the longest wait for the next tick of an agent. The longest
	// period of its loop is a minute.
	tickPatience = 90 * time.Second
)

// A Client sends requests to the agent of a state directory.
type Client struct {
	path         string
	http         http.Client
	wait         time.Duration // longest wait until a request takes effect
	answer, tick time.Duration // longest waits for an answer and for a tick
}

// NewClient returns a client. It opens a connection for each request. A request
// fails if the agent does not answer within 10 s.
func NewClient(stateDir string) *Client {
	path := SocketPath(stateDir)
	return &Client{path: path, wait: maxWait, answer: answerPatience, tick: tickPatience, http: http.Client{Transport: &http.Transport{
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

// Follow passes the status after each tick to see. It returns when ctx or the
// agent ends, and when the agent makes no tick for 90 s.
func (c *Client) Follow(ctx context.Context, see func(Status)) error {
	wait := awaitAnswer(ctx, c.path, c.answer)
	defer wait.End()
	body, err := c.do(wait, http.MethodGet, "ticks", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := json.NewDecoder(bufio.NewReader(body))
	for {
		var s Status
		err := lines.Decode(&s)
		wait.Heard(c.tick)
		switch {
		case wait.Err() != nil:
			return wait.Err()
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
	wait := awaitAnswer(ctx, c.path, c.answer)
	defer wait.End()
	body, err := c.do(wait, method, what, about)
	if err != nil {
		return to, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&to); err != nil {
		return to, fmt.Errorf("ask tenond for its %s: %w", what, cmp.Or(wait.Err(), err))
	}
	return to, nil
}

// do sends a request and returns the body of a successful answer.
func (c *Client) do(wait *answerWait, method, what string, about url.Values) (io.ReadCloser, error) {
	// The host name is ignored: all connections go to the socket.
	u := url.URL{Scheme: "http", Host: "tenond", Path: "/v1/" + what, RawQuery: about.Encode()}
	request, err := http.NewRequestWithContext(wait.Context(), method, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask tenond for its %s: %w", what, err)
	}
	response, err := c.http.Do(request)
	if of := (*url.Error)(nil); errors.As(err, &of) {
		err = of.Err // the user knows the socket, not the URL
	}
	switch {
	case err != nil && wait.Err() != nil:
		return nil, wait.Err()
	case errors.Is(err, syscall.EAGAIN): // too many clients wait already
		return nil, noAnswer(c.path)
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
