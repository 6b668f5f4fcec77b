package listen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// buffer reads the whole body of a request. If the body is malformed, too long or
// does not come in time, it answers the request and returns false.
func buffer(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return true
	}
	status := http.StatusBadRequest
	if errors.Is(err, os.ErrDeadlineExceeded) {
		status = http.StatusRequestTimeout
	} else if long, is := errors.AsType[*http.MaxBytesError](err); is {
		status, err = http.StatusRequestEntityTooLarge, fmt.Errorf("want at most %d bytes", long.Limit)
	}
	w.Header().Set("Connection", "close")
	http.Error(w, fmt.Sprintf("read the body of the request: %v", err), status)
	return false
}

// errHeld means that the bodies of all requests together are too long.
var errHeld = fmt.Errorf("the bodies of all requests hold more than %d bytes: try again", int64(maxHeld))

// A waitingBody is the body of a request. While a handler waits for it, its
// connection waits for the client.
type waitingBody struct {
	io.ReadCloser
	of   *conn
	held int64
}

func (b *waitingBody) Read(p []byte) (int, error) {
	b.of.pause()
	n, err := b.ReadCloser.Read(p)
	b.of.resume()
	b.held += int64(n)
	if b.of.of.held.Add(int64(n)) > maxHeld && b.held > smallBody {
		return 0, errHeld
	}
	return n, err
}

// release gives back the bytes of the body.
func (b *waitingBody) release() { b.of.of.held.Add(-b.held) }
