package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A Span is the times at which an expression is evaluated, in seconds since 1970: from
// First to Last, one every Every seconds. A Span with one time needs no Every.
type Span struct{ First, Last, Every int64 }

// A Line is a series of an answer: its labels, and a value at some of the times.
type Line struct {
	Labels map[string]string
	At     []int64
	Values []float64
	Odd    []int64 // the times of samples without a finite number
}

// A Cause says what may help after a query has failed.
type Cause string

// The causes of a Refusal.
const (
	TooMuch Cause = "too-much" // the same for fewer series or times
	Busy    Cause = "busy"     // the same query, later
	Wrong   Cause = "wrong"    // nothing: the query, the address or the token is wrong
)

// A Refusal is the error of a query without an answer, or with a part of one.
type Refusal struct {
	Cause  Cause
	Status int           // of HTTP; 0: the answer did not come, or is not whole
	Kind   string        // the errorType of the API, if there is one
	Detail string        // what the server or the network said, for people
	After  time.Duration // the time to wait that the server names; 0: none
}

func (r *Refusal) Error() string {
	if r.Status == 0 || r.Status == http.StatusOK {
		return r.Detail
	}
	return strings.TrimSuffix(fmt.Sprintf("HTTP status %d %s: %s", r.Status, r.Kind, r.Detail), ": ")
}

const (
	// maxMatrix is the longest answer to an Evaluate, and maxDetail the longest text
	// of a server in an error.
	maxMatrix = 128 << 20
	maxDetail = 400
	// maxTime is a time in the year 2286, in seconds.
	maxTime = 1e10
)

// Evaluate returns the values of an expression of PromQL. Samples without a finite
// number have no value. It takes no longer than patience. Each error but that of ctx
// is a *Refusal. A server that says that its answer is not complete has failed.
func (c *Client) Evaluate(ctx context.Context, text string, s Span, patience time.Duration) ([]Line, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	of := url.Values{"query": {text}, "timeout": {patience.String()}}
	at := c.url
	if s.First == s.Last {
		of.Set("time", strconv.FormatInt(s.First, 10))
	} else {
		at += "_range"
		of.Set("start", strconv.FormatInt(s.First, 10))
		of.Set("end", strconv.FormatInt(s.Last, 10))
		of.Set("step", strconv.FormatInt(s.Every, 10))
	}
	lines, err := c.evaluate(limited, http.MethodPost, at, of)
	if r, is := errors.AsType[*Refusal](err); is && slices.Contains([]int{http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented}, r.Status) {
		lines, err = c.evaluate(limited, http.MethodGet, at, of) // a proxy that lets nobody send
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return lines, err
}

func (c *Client) evaluate(ctx context.Context, method, at string, of url.Values) ([]Line, error) {
	var body io.Reader = http.NoBody
	if method == http.MethodGet {
		at += "?" + of.Encode()
	} else {
		body = strings.NewReader(of.Encode())
	}
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	request, err := http.NewRequestWithContext(traced, method, at, body)
	if err != nil {
		r := c.lost(err, connected.Load())
		r.Cause = Wrong
		return nil, r
	}
	request.Header = c.headers.Clone()
	if method != http.MethodGet {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	got, err := c.http.Do(request)
	if err != nil {
		return nil, c.lost(err, connected.Load())
	}
	defer got.Body.Close()
	content, err := io.ReadAll(io.LimitReader(got.Body, maxMatrix+1))
	switch {
	case err != nil:
		return nil, c.lost(err, connected.Load())
	case len(content) > maxMatrix:
		return nil, &Refusal{Cause: TooMuch, Detail: fmt.Sprintf("the answer has more than %d MiB", maxMatrix>>20)}
	}
	return c.matrix(got, content)
}

// lost returns the Refusal for an answer that did not come. It leaves out the address that
// an error of package url has: with GET, the query is in it. A query is too large only if
// there was a connection.
func (c *Client) lost(err error, connected bool) *Refusal {
	if of, is := errors.AsType[*url.Error](err); is {
		err = of.Err
	}
	r := &Refusal{Cause: Busy, Detail: c.quiet(err.Error())}
	if late, is := errors.AsType[net.Error](err); is && late.Timeout() && connected {
		r.Cause = TooMuch
	}
	return r
}

// quiet returns the words of a server without secrets and control characters. It wants
// them whole: of a part of a secret, it knows nothing.
func (c *Client) quiet(text string) string {
	for _, s := range c.secrets {
		if s != "" {
			text = strings.ReplaceAll(text, string(s), hidden)
		}
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + " …"
	}
	return text
}

// series is an answer of the HTTP API to an instant query, or to one over a span.
type series struct {
	Status   string   `json:"status"`
	Kind     string   `json:"errorType"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Data     struct {
		Type   string `json:"resultType"`
		Result []struct {
			Metric map[string]string    `json:"metric"`
			Value  [2]json.RawMessage   `json:"value"`
			Values [][2]json.RawMessage `json:"values"`
		} `json:"result"`
	} `json:"data"`
}

func (c *Client) matrix(got *http.Response, content []byte) ([]Line, error) {
	var a series
	err := json.Unmarshal(content, &a)
	if got.StatusCode != http.StatusOK {
		r := &Refusal{Cause: causeOf(got.StatusCode, a.Kind), Status: got.StatusCode, Kind: c.quiet(a.Kind), Detail: c.quiet(a.Error), After: waitOf(got.Header)}
		if err != nil {
			r.Detail = c.quiet(strings.TrimSpace(string(content)))
		}
		return nil, r
	}
	switch {
	case err != nil:
		return nil, &Refusal{Cause: Busy, Status: got.StatusCode, Detail: c.quiet("the answer is not whole JSON: " + err.Error())}
	case a.Status != "success", a.Data.Type != "matrix" && a.Data.Type != "vector":
		return nil, &Refusal{Cause: Wrong, Status: got.StatusCode, Detail: fmt.Sprintf("the answer is no result of a query: status %q, type %q", c.quiet(a.Status), c.quiet(a.Data.Type))}
	case len(a.Warnings) > 0:
		return nil, &Refusal{Cause: Busy, Status: got.StatusCode, Detail: c.quiet("the answer is not complete: " + strings.Join(a.Warnings, "; "))}
	}
	lines := make([]Line, 0, len(a.Data.Result))
	for _, s := range a.Data.Result {
		if a.Data.Type == "vector" {
			s.Values = [][2]json.RawMessage{s.Value}
		}
		l := Line{Labels: s.Metric, At: make([]int64, 0, len(s.Values)), Values: make([]float64, 0, len(s.Values))}
		for _, v := range s.Values {
			at, err := strconv.ParseFloat(string(v[0]), 64)
			if err != nil || math.IsNaN(at) || math.Abs(at) > maxTime {
				return nil, &Refusal{Cause: Wrong, Status: got.StatusCode, Detail: fmt.Sprintf("the time of a sample is %.40q", c.quiet(string(v[0])))}
			}
			if value, is := Number(v[1]); is && !math.IsInf(value, 0) {
				l.At, l.Values = append(l.At, int64(math.Round(at))), append(l.Values, value)
			} else {
				l.Odd = append(l.Odd, int64(math.Round(at)))
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// causeOf returns what may help after a status of HTTP.
func causeOf(status int, kind string) Cause {
	switch {
	case status == http.StatusUnprocessableEntity, status == http.StatusRequestEntityTooLarge, status == http.StatusGatewayTimeout, kind == "timeout":
		return TooMuch
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		return Busy
	}
	return Wrong
}

// waitOf returns the time of the header Retry-After, if it is a number of seconds.
func waitOf(h http.Header) time.Duration {
	n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0 // none, or a date, which needs the clock of the server
	}
	return time.Duration(n) * time.Second
}

// Number returns the number in a sample of an answer. A native histogram, and a value
// that is not a number, have none.
func Number(sample json.RawMessage) (float64, bool) {
	var text string
	if json.Unmarshal(sample, &text) != nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && !math.IsNaN(v)
}
