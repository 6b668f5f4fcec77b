package protocol

import (
	"strings"
	"testing"
)

// feedInPieces feeds a stream to a parser in pieces of one size. It returns the
// error of the parser. exact reports whether the answer was complete at the end
// of the stream, and not earlier.
func feedInPieces(a Answer, stream string, piece int) (exact bool, err error) {
	for at := 0; at < len(stream); at += piece {
		end := min(at+piece, len(stream))
		done, err := a.Feed([]byte(stream[at:end]))
		if err != nil {
			return false, err
		}
		if done != (end == len(stream)) {
			return false, nil
		}
	}
	return true, nil
}

func TestAnswersOfCachesAreCompleteExactlyAtTheirEnd(t *testing.T) {
	redis, memcached := func() Answer { return &Redis{} }, func() Answer { return &Memcached{} }
	for name, c := range map[string]struct {
		parser func() Answer
		stream string
		failed bool
	}{
		"redis status":      {redis, "+OK\r\n", false},
		"redis error":       {redis, "-LOADING Redis is loading the dataset in memory\r\n", true},
		"redis integer":     {redis, ":-42\r\n", false},
		"redis bulk":        {redis, "$12\r\nhello\r\n$3\r\nx\r\n", false},
		"redis empty":       {redis, "$0\r\n\r\n", false},
		"redis null":        {redis, "$-1\r\n", false},
		"redis array":       {redis, "*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+x\r\n", false},
		"redis empty array": {redis, "*0\r\n", false},
		"redis error in it": {redis, "*2\r\n+OK\r\n-ERR no\r\n", true},
		"memcached value":   {memcached, "VALUE k 0 10\r\nEND\r\nEND\r\n\r\nEND\r\n", false},
		"memcached miss":    {memcached, "END\r\n", false},
		"memcached stored":  {memcached, "STORED\r\n", false},
		"memcached version": {memcached, "VERSION 1.6.18\r\n", false},
		"memcached full":    {memcached, "SERVER_ERROR out of memory storing object\r\n", true},
		"memcached unknown": {memcached, "ERROR\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			a := c.parser()
			for piece := 1; piece <= len(c.stream); piece++ {
				a.Reset()
				if exact, err := feedInPieces(a, c.stream, piece); err != nil || !exact || a.Outcome().Failed != c.failed {
					t.Fatalf("pieces of %d: exact %v, failed %v, error %v", piece, exact, a.Outcome().Failed, err)
				}
			}
			if said := a.Outcome().Refusal; (said != "") != c.failed {
				t.Errorf("refusal %q, failed %v", said, c.failed)
			}
			a.Reset()
			if _, err := a.Feed([]byte(c.stream + "+")); err == nil {
				t.Error("bytes after the end are accepted")
			}
		})
	}
}

func TestOtherProtocolsAreNoAnswersOfCaches(t *testing.T) {
	for name, c := range map[string]struct {
		answer       Answer
		stream, want string
	}{
		"HTTP for redis":      {&Redis{}, "HTTP/1.1 400 Bad Request\r\n", `begins with 'H'`},
		"a count of letters":  {&Redis{}, "$abc\r\n", "not a number"},
		"no CRLF":             {&Redis{}, "+OK\n", "CRLF"},
		"endless line":        {&Redis{}, "+" + strings.Repeat("x", maxHead+1), "longer than 64 KiB"},
		"bulk ends in XX":     {&Redis{}, "$2\r\nokXX", "do not end with CRLF"},
		"bulk is too long":    {&Redis{}, "$1\r\nok\r\n", "do not end with CRLF"},
		"bulk ends in CR, X":  {&Redis{}, "*2\r\n$2\r\nok\rX:1\r\n", "do not end with CRLF"},
		"value ends in XX":    {&Memcached{}, "VALUE k 0 2\r\nokXXEND\r\n", "do not end with CRLF"},
		"redis for memcached": {&Memcached{}, "-ERR unknown command\r\n", "not an answer of memcached"},
		"half a header":       {&Memcached{}, "VALUE k 0\r\n", "want key, flags and length"},
		"a length of letters": {&Memcached{}, "VALUE k 0 x\r\n", "not a number"},
	} {
		if _, err := c.answer.Feed([]byte(c.stream)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// FuzzCacheAnswers checks that the result does not depend on how an answer is
// divided into pieces.
func FuzzCacheAnswers(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n:1\r\n"), 3)
	f.Add([]byte("VALUE k 0 2\r\nok\r\nEND\r\n"), 5)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		if piece < 1 || len(stream) == 0 {
			return
		}
		for _, pair := range [][2]Answer{{&Redis{}, &Redis{}}, {&Memcached{}, &Memcached{}}} {
			done, err := pair[0].Feed(append([]byte(nil), stream...))
			exact, errPieces := feedInPieces(pair[1], string(stream), piece)
			if (err == nil && done) != (errPieces == nil && exact) {
				t.Errorf("%q: whole %v, %v; pieces of %d %v, %v", stream, done, err, piece, exact, errPieces)
			}
		}
	})
}
