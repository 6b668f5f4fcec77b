package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/listen"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// patience is the time that a client may take to send a request, or to read
	// one line of the answer.
	patience = 5 * time.Second
	// streams is the maximum number of clients that may follow the status at
	// the same time.
	streams = 8
	// maxConnections is the maximum number of connections at a time, and maxBody
	// the maximum length of a request body in bytes.
	maxConnections = 32
	maxBody        = 16 << 10
)

// Serve answers requests on the socket in stateDir until ctx ends. The answers
// come from the ledger. o carries out requests that change something. Serve
// replaces an existing socket: only the holder of the node's lease may call
// Serve, so the agent that made the old socket is dead.
//
// If another program removes the socket, Serve makes it again within 2 s.
func Serve(ctx context.Context, stateDir string, l *Ledger, o Operator, log *slog.Logger) error {
	return serveAgain(ctx, checkInterval, stateDir, l, o, log)
}

// serveAgain is Serve with a given time (every) between two checks of the socket.
func serveAgain(ctx context.Context, every time.Duration, stateDir string, l *Ledger, o Operator, log *slog.Logger) error {
	for again := false; ; again = true {
		err := serve(ctx, every, stateDir, l, o, log)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errRemoved):
			log.Warn("made the socket again: another program removed it", "directory", stateDir)
		case !again:
			return err
		}
		select { // wait, because the directory may be missing for a moment, too
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// checkInterval is the time between two checks that the socket still exists.
const checkInterval = 2 * time.Second

// errRemoved means that another program has removed the socket.
var errRemoved = errors.New("the socket was removed")

// serve serves one socket until ctx ends or the socket is removed.
func serve(ctx context.Context, every time.Duration, stateDir string, l *Ledger, o Operator, log *slog.Logger) error {
	path := SocketPath(stateDir)
	socket, err := listen.Private(ctx, path)
	if err != nil {
		return fmt.Errorf("serve %s: %w", path, err)
	}
	ctx, removed := context.WithCancelCause(ctx)
	defer removed(nil)
	go watch(ctx, every, path, removed)
	if err := listen.Serve(ctx, socket, listen.Options{
		Handler: handler(l, o), Connections: maxConnections, Patience: patience, Idle: patience, Body: maxBody, Log: log,
	}); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// watch calls removed if the socket at path no longer exists or was replaced.
func watch(ctx context.Context, every time.Duration, path string, removed context.CancelCauseFunc) {
	made, err := os.Lstat(path)
	if err != nil {
		removed(errRemoved)
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		if now, err := os.Lstat(path); err != nil || !os.SameFile(made, now) {
			removed(errRemoved)
			return
		}
	}
}

// handler returns the handler of all requests on the socket.
func handler(l *Ledger, o Operator) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { Answer(w, l.Status(), nil) })
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
		var e Explanation
		var err error
		if knob := r.FormValue("knob"); knob != "" {
			var k node.Knob
			if k, err = ParseKnob(knob); err == nil {
				e, err = l.ExplainKnob(k)
			}
		} else {
			e, err = l.ExplainWorkload(r.FormValue("workload"))
		}
		Answer(w, e, err)
	})
	handleQOS(mux, l, o)
	o.Handle(mux)
	free := make(chan struct{}, streams)
	mux.HandleFunc("GET /v1/ticks", func(w http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
			stream(w, r, l)
		default:
			http.Error(w, fmt.Sprintf("%d clients follow the ticks already", streams), http.StatusTooManyRequests)
		}
	})
	return mux
}

// ParseKnob parses a knob in its text form: "batch.slice cpu.max".
func ParseKnob(text string) (node.Knob, error) {
	f := strings.Fields(text)
	if len(f) != 2 {
		return node.Knob{}, fmt.Errorf("knob %q: want a cgroup and a file, such as batch.slice cpu.max", text)
	}
	return node.KnobAt(f[0], node.File(f[1])), nil
}

// A refusal is the JSON body of an answer with an error status.
type refusal struct {
	Error string   `json:"error"`
	Name  string   `json:"name,omitempty"`
	Known []string `json:"known,omitempty"`
}

// Answer writes the answer to a request: v, or an error if err is not nil.
func Answer(w http.ResponseWriter, v any, err error) {
	status := http.StatusOK
	if err != nil {
		body := refusal{Error: err.Error()}
		status = http.StatusBadRequest
		if unknown, is := errors.AsType[*Unknown](err); is {
			body.Name, body.Known, status = unknown.Name, unknown.Known, http.StatusNotFound
		}
		v = body
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(printable.JSON(w)).Encode(v) // an error means that the client has disconnected
}

// stream sends the status in one line after each tick. A client that reads
// slowly misses some ticks.
func stream(w http.ResponseWriter, r *http.Request, l *Ledger) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	c := http.NewResponseController(w)
	for {
		status, next := l.follow()
		if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return
		}
		if err := json.NewEncoder(printable.JSON(w)).Encode(status); err != nil || c.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-next:
		}
	}
}
