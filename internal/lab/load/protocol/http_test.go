package protocol

import (
	"strings"
	"testing"
)

func TestResponseIsCompleteExactlyAtItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		status int
		close  bool
	}{
		"with length":           {"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 5\r\n\r\nhello", 200, false},
		"empty":                 {"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", 200, false},
		"no reason phrase":      {"HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx", 200, false},
		"no space, no reason":   {"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 200, false},
		"a space, another name": {"HTTP/1.1 200 OK\r\nX-Trace : 1\r\nContent-Length: 1\r\n\r\nx", 200, false},
		"no content":            {"HTTP/1.1 204 No Content\r\n\r\n", 204, false},
		"not modified":          {"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", 304, false},
		"error":                 {"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\nConnection: Close\r\n\r\nno", 500, true},
		"old version":           {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, true},
		"old but alive":         {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", 200, false},
		"chunked":               {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;name=value\r\n0123456789\r\n0\r\n\r\n", 200, false},
		"chunked with trailer":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\nx\r\n0\r\nDigest: y\r\n\r\n", 200, false},
		"interim first":         {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, false},
		"header without colon":  {"HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 1\r\n\r\nx", 200, false},
		"close in a list":       {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close, X-Trace\r\n\r\nx", 200, true},
		"close wins":            {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close, keep-alive\r\n\r\nx", 200, true},
		"close wins, lines":     {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\nConnection: upgrade,close\r\n\r\nx", 200, true},
		"old, alive in a list":  {"HTTP/1.0 200 OK\r\nConnection: X-Trace, keep-alive\r\nContent-Length: 1\r\n\r\nx", 200, false},
		"no close":              {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: closed, not-close\r\n\r\nx", 200, false},
		"chunked in a list":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: , chunked,\r\n\r\n0\r\n\r\n", 200, false},
		"equal lengths":         {"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\nContent-Length: 1\r\n\r\nx", 200, false},
		"body that looks alike": {"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\r\n\r\nabcd", 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			for piece := 1; piece <= len(c.stream); piece++ {
				var r HTTP
				for at := 0; at < len(c.stream); at += piece {
					end := min(at+piece, len(c.stream))
					done, err := r.Feed([]byte(c.stream[at:end]))
					if err != nil || done != (end == len(c.stream)) {
						t.Fatalf("pieces of %d, byte %d of %d: done %v, error %v", piece, end, len(c.stream), done, err)
					}
				}
				if r.status != c.status || r.closes != c.close {
					t.Fatalf("pieces of %d: status %d, close %v; want %d, %v", piece, r.status, r.closes, c.status, c.close)
				}
			}
		})
	}
}

func TestResponseWithoutLengthEndsWithTheConnection(t *testing.T) {
	var r HTTP
	for _, piece := range []string{"HTTP/1.1 200 OK\r\n\r\n", "any", "more"} {
		if done, err := r.Feed([]byte(piece)); done || err != nil {
			t.Errorf("after %q: done %v, error %v", piece, done, err)
		}
	}
	if done, err := r.Feed(nil); !done || err != nil || !r.Outcome().Closes {
		t.Errorf("at the end of the connection: done %v, error %v, %+v", done, err, r.Outcome())
	}
	r.Reset()
	if done, err := r.Feed(nil); done || err != nil {
		t.Errorf("after a reset: done %v, error %v", done, err)
	}
}

func TestResponseRefusesWhatIsNotHTTP(t *testing.T) {
	for name, c := range map[string]struct{ stream, want string }{
		"other protocol":    {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not an HTTP/1 status line"},
		"status of letters": {"HTTP/1.1 abc OK\r\n\r\n", "not an HTTP/1 status line"},
		"status too small":  {"HTTP/1.1 042 OK\r\n\r\n", "not an HTTP/1 status line"},
		"negative length":   {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", `content-length "-1"`},
		"huge length":       {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "content-length"},
		"gzip transfer":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "only chunked"},
		"gzip, two lines":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n", `"chunked, gzip": only chunked`},
		"chunked twice":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", "only chunked"},
		"status too long":   {"HTTP/1.1 2000 x\r\nContent-Length: 0\r\n\r\n", "not an HTTP/1 status line"},
		"no space":          {"HTTP/1.1 200OK\r\nContent-Length: 0\r\n\r\n", "not an HTTP/1 status line"},
		"status and a tab":  {"HTTP/1.1 200\tOK\r\nContent-Length: 0\r\n\r\n", "not an HTTP/1 status line"},
		"version of a word": {"HTTP/1.x 200 OK\r\nContent-Length: 0\r\n\r\n", "not an HTTP/1 status line"},
		"space in a name":   {"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n", `header "Content-Length :`},
		"tab in a name":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding\t: chunked\r\n\r\n", `header "Transfer-Encoding\t:`},
		"close and a space": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nconnection : close\r\n\r\n", `header "connection :`},
		"length of nothing": {"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", `content-length "" is not a number`},
		"length on a line":  {"HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok", `content-length "" is not a number`},
		"chunk ends in XX":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokXX0\r\n\r\n", "do not end with CRLF"},
		"chunk ends in LF":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\n0\r\n\r\n", "do not end with CRLF"},
		"chunk is too long": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n", "do not end with CRLF"},
		"two lengths":       {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "content-length is both 1 and 2"},
		"a banner alone":    {"220 mail", "not an HTTP/1 status line"},
		"line feeds alone":  {"HTTP/1.1 200 OK\nContent-Length: 1\n\nx", "LF alone"},
		"a long value":      {"HTTP/1.1 200 OK\r\nContent-Length: " + strings.Repeat("\x00", 16<<10) + "1\r\n\r\n", `content-length "\x00`},
		"too many bytes":    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy", "after the end"},
		"bytes after chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx", "after the end"},
		"no chunk size":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n;x\r\n", "chunk size"},
		"huge chunk":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "chunk size"},
		"endless header":    {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead), "longer than"},
		"endless trailer":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + strings.Repeat("x", maxHead), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			var r HTTP
			if _, err := r.Feed([]byte(c.stream)); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 {
				t.Errorf("error %v; want one with %q", err, c.want)
			}
		})
	}
}

// FuzzResponse checks that the result does not depend on how the stream is
// divided into pieces.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), 7)
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), 3)
	f.Add([]byte("HTTP/1.1 200 OK\r\nConnection: keep-alive, close\r\nTransfer-Encoding: chunked,\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n"), 5)
	f.Add([]byte("HTTP/1.1 200 OK\nConnection: close\n\nx\r\n\r\n"), 4)
	f.Add([]byte("SSH-2.0-x"), 2)
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 x\r\nConnection: close\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		if piece < 1 || piece > len(stream) {
			return
		}
		var whole, cut HTTP
		wholeDone, wholeErr := whole.Feed(stream)
		done, err := false, error(nil)
		for at := 0; at < len(stream) && err == nil && !done; at += piece {
			end := min(at+piece, len(stream))
			done, err = cut.Feed(stream[at:end])
			if done && end < len(stream) {
				err = errExtra
			}
		}
		if (err == nil) != (wholeErr == nil) || err == nil && (done != wholeDone || cut.status != whole.status || cut.closes != whole.closes) {
			t.Errorf("whole: done %v, error %v, status %d; in pieces of %d: done %v, error %v, status %d",
				wholeDone, wholeErr, whole.status, piece, done, err, cut.status)
		}
	})
}
