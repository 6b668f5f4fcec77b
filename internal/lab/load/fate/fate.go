// Package fate says how the requests of a load ended that have no latency: by codes,
// numbers and causes, and in words.
package fate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Kind is a way in which a request, or an attempt to connect, fails.
type Kind string

// The kinds. Their names are the keys of Errors.
const (
	Connect Kind = "connect" // an attempt to connect failed
	Write   Kind = "write"   // the request could not be written
	Read    Kind = "read"    // the service closed the connection before the answer was complete
	Answer  Kind = "answer"  // the answer breaks the rules of the protocol; the client closed the connection
	Status  Kind = "status"  // the answer is complete, and is an error
	Timeout Kind = "timeout" // the answer was not complete in time
	Unsent  Kind = "unsent"  // no connection was free until the end
	Line    Kind = "line"    // a line of a load command holds no latency of the run
)

// Errors has the number of failures for each Kind.
type Errors struct {
	Connect int64 `json:"connect"`
	Write   int64 `json:"write"`
	Read    int64 `json:"read"`
	Answer  int64 `json:"answer,omitempty"`
	Status  int64 `json:"status"`
	Timeout int64 `json:"timeout"`
	// Unsent counts requests that still waited for a connection at the end of
	// the run. A run ends Config.Timeout after the end of its schedule.
	Unsent int64 `json:"unsent"`
	Line   int64 `json:"line,omitempty"`
}

// kinds are all kinds, each with the words for its number.
var kinds = []struct {
	kind    Kind
	meaning string
	of      func(*Errors) *int64
}{
	{Connect, "connections could not be made", func(e *Errors) *int64 { return &e.Connect }},
	{Write, "requests could not be written", func(e *Errors) *int64 { return &e.Write }},
	{Read, "connections were lost before the answer was complete", func(e *Errors) *int64 { return &e.Read }},
	{Answer, "answers break the rules of the protocol", func(e *Errors) *int64 { return &e.Answer }},
	{Status, "answers had a status other than 2xx, or were errors", func(e *Errors) *int64 { return &e.Status }},
	{Timeout, "requests were not answered in time", func(e *Errors) *int64 { return &e.Timeout }},
	{Unsent, "requests never got a connection", func(e *Errors) *int64 { return &e.Unsent }},
	{Line, "lines of the load command hold no latency of this run", func(e *Errors) *int64 { return &e.Line }},
}

// Count adds one failure.
func (e *Errors) Count(kind Kind) {
	for _, k := range kinds {
		if k.kind == kind {
			*k.of(e)++
		}
	}
}

// Add adds the failures of o.
func (e *Errors) Add(o Errors) {
	for _, k := range kinds {
		*k.of(e) += *k.of(&o)
	}
}

// ByKind returns the number of failures of each kind.
func (e Errors) ByKind() map[string]int64 {
	all := map[string]int64{}
	for _, k := range kinds {
		all[string(k.kind)] = *k.of(&e)
	}
	return all
}

// Total returns the number of all failures.
func (e Errors) Total() int64 {
	sum := int64(0)
	for _, n := range e.ByKind() {
		sum += n
	}
	return sum
}

// A Cause is why requests failed.
type Cause struct {
	Kind Kind `json:"kind"`
	// Reason is the error of the kernel, the fault that the parser found, or what
	// the answer says: the status of HTTP, or the message of the service.
	Reason string `json:"reason,omitempty"`
	// Begun is true if a part of the answer had arrived. Bytes and FirstLine
	// describe that part of the first such answer.
	Begun     bool   `json:"begun,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
	FirstLine string `json:"first_line,omitempty"`
	// Count is the number of failures. It is 0 in a table of causes that belongs to
	// no part of a run.
	Count int64 `json:"count"`
}

// same reports whether two causes count together.
func (c Cause) same(o Cause) bool {
	return c.Kind == o.Kind && c.Reason == o.Reason && c.Begun == o.Begun
}

// MaxCauses is the largest number of entries in a table of causes.
const MaxCauses = 64

// otherReasons is the reason of the causes for which a table has no room.
const otherReasons = "other reasons"

// Causes is a table of different causes.
type Causes []Cause

// Index returns the place of a cause in the table, and adds it if it is new. If the
// table is almost full, a new cause counts with the other ones of its kind.
func (t *Causes) Index(c Cause) int {
	if i := slices.IndexFunc(*t, c.same); i >= 0 {
		return i
	}
	if len(*t) >= MaxCauses-len(kinds) && c.Reason != otherReasons {
		return t.Index(Cause{Kind: c.Kind, Reason: otherReasons})
	}
	*t = append(*t, c)
	return len(*t) - 1
}

// maxFirstLine is the largest number of bytes of a line that a cause quotes.
const maxFirstLine = 80

// FirstLine returns the begin of a line from the bytes of an answer.
func FirstLine(answer []byte) string {
	line := answer[:min(len(answer), maxFirstLine)]
	if end := slices.IndexFunc(line, func(b byte) bool { return b == '\r' || b == '\n' }); end >= 0 {
		line = line[:end]
	}
	return string(line)
}

// Connections says in which states the connections of a client were when it gave up
// the requests that it had not sent.
type Connections struct {
	All     int `json:"all"`
	Waiting int `json:"waiting_for_an_answer"`
	Down    int `json:"down"` // no connection could be made
}

// Texts returns one text for each kind of failure: how many failed, and why.
func (e Errors) Texts(causes []Cause, at Connections) []string {
	var texts []string
	for _, k := range kinds {
		n := *k.of(&e)
		if n == 0 {
			continue
		}
		why := reasons(k.kind, causes)
		if k.kind == Unsent {
			why = at.text()
		}
		texts = append(texts, fmt.Sprintf("%s errors: %d %s%s", k.kind, n, k.meaning, why))
	}
	return texts
}

// text says what the connections were doing.
func (c Connections) text() string {
	switch {
	case c.All == 0:
		return ""
	case c.Waiting == c.All:
		return fmt.Sprintf(": all %d connections wait for an answer", c.All)
	case c.Down == c.All:
		return fmt.Sprintf(": none of %d connections could be made", c.All)
	}
	return fmt.Sprintf(": of %d connections, %d wait for an answer and %d could not be made", c.All, c.Waiting, c.Down)
}

// reasons lists the causes of a kind, with the most frequent one first.
func reasons(kind Kind, causes []Cause) string {
	some := slices.DeleteFunc(slices.Clone(causes), func(c Cause) bool { return c.Kind != kind || c.Count == 0 })
	slices.SortStableFunc(some, func(a, b Cause) int { return cmp.Compare(b.Count, a.Count) })
	const most = 5
	left := int64(0)
	var texts []string
	for i, c := range some {
		if i >= most {
			left += c.Count
			continue
		}
		texts = append(texts, c.text(len(some) > 1))
	}
	if left > 0 {
		texts = append(texts, fmt.Sprintf("%s: %d", otherReasons, left))
	}
	switch {
	case len(texts) == 0:
		return ""
	case kind == Status:
		return " (" + strings.Join(texts, ", ") + ")"
	}
	return ": " + strings.Join(texts, "; ")
}

// text returns the cause in words, with its number if there are several causes or
// the reason is a status.
func (c Cause) text(counted bool) string {
	text := c.Reason
	switch {
	case c.Kind == Status:
		return fmt.Sprintf("%s: %d", c.Reason, c.Count)
	case c.Kind == Timeout && c.Begun:
		text = "the answer began and did not end"
	case c.Kind == Timeout && text == "":
		text = "no byte of the answer came"
	case c.Kind == Read && !c.Begun && text != otherReasons:
		text += ", before the first byte of the answer"
	}
	if counted {
		text = fmt.Sprintf("%d times %s", c.Count, text)
	}
	switch {
	case c.Kind == Line && c.Begun:
		text += fmt.Sprintf(", such as %q", c.FirstLine)
	case c.Begun && c.Bytes > 0:
		text += fmt.Sprintf(" (the first such answer has %d bytes and begins with %q)", c.Bytes, c.FirstLine)
	}
	return text
}
