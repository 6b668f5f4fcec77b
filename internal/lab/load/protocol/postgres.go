package protocol

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Accounts is the number of rows of the table accounts. Without a query in its
// URL, a load on PostgreSQL asks for one of these rows.
const Accounts = 10000

const (
	// maxMessage is the largest message that PostgreSQL sends
	// (PQ_LARGE_MESSAGE_LIMIT).
	maxMessage = 1<<30 - 1
	// maxKept is the number of bytes of an error that the parser keeps.
	maxKept = 4 << 10
)

// postgres asks a PostgreSQL server. Each connection is a process of the server,
// which allows 100 by default.
var postgres = Protocol{
	Scheme: "postgres", Form: "postgres://USER@HOST[:PORT]/DATABASE[?query=SQL]", Port: "5432", Sends: "queries", Connections: 32,
	Requests: postgresRequests, Answer: func() Answer { return &Postgres{} },
}

// A Postgres parses one answer of a PostgreSQL server (protocol version 3.0):
// all messages up to ReadyForQuery. It discards the rows. The zero value is
// ready for use.
//
// Source: PostgreSQL documentation, chapter "Frontend/Backend Protocol".
type Postgres struct {
	head  [5]byte // type and length of the current message
	got   int     // bytes of head so far
	left  int     // bytes of the message after head that are still to come
	kept  []byte  // beginning of the message after head, if its content matters
	fault []byte  // content of an ErrorResponse; otherwise empty
	ended bool
}

var (
	errMessageType   = errors.New("not a message of PostgreSQL that answers a query")
	errMessageLength = errors.New("a message of PostgreSQL has a wrong length")
)

// Reset makes a ready for the next answer, but keeps its memory.
func (a *Postgres) Reset() { *a = Postgres{kept: a.kept[:0], fault: a.fault[:0]} }

// Feed implements Answer. If the server refuses the connection, Feed returns the message of
// the server as an error.
func (a *Postgres) Feed(p []byte) (done bool, err error) {
	for len(p) > 0 {
		if a.ended {
			return false, errExtra
		}
		if a.got < len(a.head) {
			n := copy(a.head[a.got:], p)
			a.got, p = a.got+n, p[n:]
			if a.got < len(a.head) {
				break
			}
			if err := a.begin(); err != nil {
				return false, err
			}
		}
		n := min(a.left, len(p))
		if strings.IndexByte("REZ", a.head[0]) >= 0 {
			a.kept = append(a.kept, p[:min(n, maxKept-len(a.kept))]...)
		}
		a.left, p = a.left-n, p[n:]
		if a.left > 0 {
			break
		}
		if err := a.end(); err != nil {
			return false, err
		}
		a.got, a.kept = 0, a.kept[:0]
	}
	return a.ended, nil
}

// begin handles the type and the length of a message.
func (a *Postgres) begin() error {
	// Authentication, BackendKeyData, ParameterStatus, Notice-, Notification-
	// and ErrorResponse, RowDescription, DataRow, CommandComplete,
	// EmptyQueryResponse, ReadyForQuery. The messages of COPY are missing.
	if strings.IndexByte("RKSNAETDCIZ", a.head[0]) < 0 {
		return fmt.Errorf("%w: it begins with %q", errMessageType, a.head[0])
	}
	length := binary.BigEndian.Uint32(a.head[1:])
	if length < 4 || length > maxMessage {
		return fmt.Errorf("%w: %d bytes", errMessageLength, length)
	}
	a.left = int(length) - 4
	return nil
}

// end handles a complete message.
func (a *Postgres) end() error {
	switch a.head[0] {
	case 'R':
		if len(a.kept) < 4 {
			return errMessageLength
		}
		return checkAuthentication(binary.BigEndian.Uint32(a.kept))
	case 'E':
		a.fault = append(a.fault[:0], a.kept...)
		if s := string(field(a.fault, 'V')); s == "FATAL" || s == "PANIC" {
			return fmt.Errorf("it answers %.300q", a.Fault())
		}
	case 'Z':
		if len(a.kept) != 1 {
			return errMessageLength
		}
		a.ended = true
	}
	return nil
}

// checkAuthentication returns an error unless the server lets the client in
// without a password.
func checkAuthentication(request uint32) error {
	method, ok := map[uint32]string{3: "a cleartext password", 5: "an MD5 password", 10: "SCRAM"}[request]
	switch {
	case request == 0:
		return nil
	case !ok:
		method = "authentication method " + strconv.FormatUint(uint64(request), 10)
	}
	return fmt.Errorf("PostgreSQL asks for %s, and this client has no password: let its user in with the method trust (pg_hba.conf)", method)
}

// field returns a field of an ErrorResponse, or nil if it is missing.
func field(fault []byte, kind byte) []byte {
	for len(fault) > 1 {
		value, rest, _ := bytes.Cut(fault[1:], []byte{0})
		if fault[0] == kind {
			return value
		}
		fault = rest
	}
	return nil
}

// Fault returns the severity, the code and the message of an error.
func (a *Postgres) Fault() string {
	return fmt.Sprintf("%s %s: %s", field(a.fault, 'V'), field(a.fault, 'C'), field(a.fault, 'M'))
}

// Outcome returns the error in one line.
func (a *Postgres) Outcome() Outcome {
	if len(a.fault) == 0 {
		return Outcome{}
	}
	return refusal(true, []byte(a.Fault()))
}

// isDatabase reports whether a URL names a user, a database and at most a query.
func isDatabase(u *url.URL) bool {
	_, password := u.User.Password()
	q, err := url.ParseQuery(u.RawQuery)
	text := u.User.Username() + u.Path + q.Get("query")
	return err == nil && u.User.Username() != "" && !password && len(u.Path) > 1 && !strings.Contains(text, "\x00") &&
		(len(q) == 0 || len(q) == 1 && q.Get("query") != "")
}

// postgresRequests returns the query of the URL, or one for each account.
func postgresRequests(u *url.URL, _ int) (r Requests, fits bool) {
	if !isDatabase(u) {
		return r, false
	}
	const version = 3 << 16
	r.Hello = message("", string(binary.BigEndian.AppendUint32(nil, version)),
		"user\x00", u.User.Username(), "\x00database\x00", u.Path[1:], "\x00application_name\x00tenon lab\x00\x00")
	r.Ready = query("SELECT 1")
	if q := u.Query().Get("query"); q != "" {
		r.Load = [][]byte{query(q)}
	} else {
		for aid := range Accounts {
			r.Load = append(r.Load, query("SELECT abalance FROM accounts WHERE aid = "+strconv.Itoa(aid+1)))
		}
	}
	r.Fill = r.Load[:1]
	return r, true
}

// query encodes a simple query.
func query(sql string) []byte { return message("Q", sql, "\x00") }

// message encodes a message with a type (empty for the first message).
func message(kind string, parts ...string) []byte {
	content := strings.Join(parts, "")
	return append(binary.BigEndian.AppendUint32([]byte(kind), uint32(4+len(content))), content...)
}

// Execute executes SQL statements, one after the other.
func Execute(ctx context.Context, rawURL string, patience time.Duration, statements ...string) error {
	t, err := Parse(ctx, rawURL, 0)
	if err != nil {
		return err
	}
	var requests [][]byte
	for _, s := range statements {
		requests = append(requests, query(s))
	}
	return t.Ask(ctx, requests, patience)
}
