// Package fetch reads small answers over HTTP from servers that nothing vouches for.
// Such a server may be slow, send without end, or send its clients elsewhere.
package fetch

import (
	"crypto/tls"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// Patience is the time for one answer, from the connection to the last byte.
	Patience = 2 * time.Second
	// MaxAnswer and maxHeader are the longest answer and its longest header.
	MaxAnswer = 1 << 20
	maxHeader = 16 << 10
)

// A Fault is an error with the reason why a source could not be used.
type Fault node.SourceTrouble

func (f Fault) Error() string { return string(f) }

// TroubleOf returns the reason why a reading failed.
func TroubleOf(err error) node.SourceTrouble {
	if f, is := errors.AsType[Fault](err); is {
		return node.SourceTrouble(f)
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return node.TroubleTLS
	}
	if late, is := errors.AsType[net.Error](err); is && late.Timeout() {
		return node.TroubleSlow
	}
	return node.TroubleConnect
}

// NewClient returns a client that follows no redirection. t is its transport without
// limits. It asks for no compression, because a compressed answer may be far larger
// than it looks, and it uses no proxy unless t has one.
func NewClient(t *http.Transport) *http.Client {
	t.DisableCompression, t.MaxResponseHeaderBytes = true, maxHeader
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Get sends a request and returns the body of the answer, which the caller closes.
// kind is the media type that the answer must have. A body that is longer than
// MaxAnswer fails where it is read. TroubleOf has the reason of each error.
func Get(c *http.Client, request *http.Request, kind string) (io.ReadCloser, error) {
	answer, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	var why node.SourceTrouble
	switch got, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type")); {
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		why = node.TroubleRedirect
	case answer.StatusCode != http.StatusOK:
		why = node.TroubleStatus
	case err != nil, got != kind, answer.Header.Get("Content-Encoding") != "":
		why = node.TroubleContent
	default:
		return &body{answer.Body, MaxAnswer}, nil
	}
	return nil, errors.Join(Fault(why), answer.Body.Close())
}

// A body is the body of an answer of which so many bytes may be read.
type body struct {
	io.ReadCloser
	left int
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		b.left = 0
		return 0, Fault(node.TroubleTooLarge)
	}
	return n, err
}
