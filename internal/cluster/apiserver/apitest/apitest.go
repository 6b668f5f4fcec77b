// Package apitest is an API server in memory, for tests. It lists and watches
// objects of the core group, and accepts server-side applies of reports. Tests
// determine how it answers evictions and events.
package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A Server is a running server.
type Server struct {
	URL  string
	http *httptest.Server

	mu      sync.Mutex
	version int
	objects map[string]map[string]object // by resource, then by namespace/name
	watches map[chan event]watched
	applied map[string][]byte // the last body, by path
	applies int
	evicted []string
	events  []corev1.Event
	refuse  func(pod string) (code int, cause string)
	away    bool
	held    map[string]*hold // by path
	shown   map[string][]byte
}

// A hold delays the requests of a path.
type hold struct {
	once          sync.Once
	asked, answer chan struct{}
}

type object struct {
	meta metav1.ObjectMeta
	text []byte
}

type event struct {
	kind string // ADDED, MODIFIED, DELETED, BOOKMARK
	text []byte
	meta metav1.ObjectMeta
}

type watched struct{ resource, namespace, name string }

func (w watched) has(resource string, m metav1.ObjectMeta) bool {
	return w.resource == resource && (w.namespace == "" || w.namespace == m.Namespace) && (w.name == "" || w.name == m.Name)
}

// New starts a server that stops at the end of the test.
func New(t testing.TB) *Server {
	s := &Server{objects: map[string]map[string]object{}, watches: map[chan event]watched{}, applied: map[string][]byte{}, held: map[string]*hold{}}
	s.http = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	s.URL = s.http.URL
	t.Cleanup(func() { s.http.CloseClientConnections(); s.http.Close() })
	return s
}

// Config returns the configuration of a client of the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// Kubeconfig writes a kubeconfig file of the server and returns its path.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{"token":"agent"}}]}`, s.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Put creates or changes an object: a *corev1.Pod, *corev1.Node or
// *corev1.ConfigMap.
func (s *Server) Put(o metav1.Object) {
	resource := resourceOf(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o.SetResourceVersion(fmt.Sprint(s.version))
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	meta := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]object{}
	}
	key := meta.Namespace + "/" + meta.Name
	kind := "ADDED"
	if _, had := s.objects[resource][key]; had {
		kind = "MODIFIED"
	}
	s.objects[resource][key] = object{meta, text}
	s.send(resource, event{kind, text, meta})
}

// Remove removes an object.
func (s *Server) Remove(o metav1.Object) {
	resource := resourceOf(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := o.GetNamespace() + "/" + o.GetName()
	if gone, had := s.objects[resource][key]; had {
		s.version++
		delete(s.objects[resource], key)
		s.send(resource, event{"DELETED", gone.text, gone.meta})
	}
}

// send sends an event to the watches of its resource. The caller holds s.mu.
func (s *Server) send(resource string, e event) {
	for c, w := range s.watches {
		if w.has(resource, e.meta) {
			c <- e
		}
	}
}

func resourceOf(o metav1.Object) string {
	switch o := o.(type) {
	case *corev1.Pod:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		return "pods"
	case *corev1.Node:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		return "nodes"
	case *corev1.ConfigMap:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		return "configmaps"
	}
	panic(fmt.Sprintf("a %T is not served", o))
}

var kinds = map[string]string{"pods": "Pod", "nodes": "Node", "configmaps": "ConfigMap"}

// RefuseAll makes the server end all watches and refuse every request with
// status 503. RefuseAll(false) makes it answer again.
func (s *Server) RefuseAll(away bool) {
	s.mu.Lock()
	s.away = away
	s.mu.Unlock()
	if away {
		s.http.CloseClientConnections()
	}
}

// Hold makes the requests of a path wait until the caller closes answer, or
// until the client gives up. asked is closed at the first of them.
func (s *Server) Hold(path string) (asked <-chan struct{}, answer chan<- struct{}) {
	h := &hold{asked: make(chan struct{}), answer: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[path] = h
	return h.asked, h.answer
}

// Refuse sets the function that answers evictions. The function returns a
// status code and the cause of a refusal. Code 0 accepts the eviction.
func (s *Server) Refuse(how func(pod string) (code int, cause string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = how
}

// Show sets the answer to a GET of a path.
func (s *Server) Show(path string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == nil {
		s.shown = map[string][]byte{}
	}
	s.shown[path] = body
}

// Evicted returns the pods for which an eviction was requested, as
// namespace/name.
func (s *Server) Evicted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.evicted)
}

// Events returns the events that clients created.
func (s *Server) Events() []corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// Applied returns the last body that was applied to a path, and the number of
// applies to all paths.
func (s *Server) Applied(path string) (body []byte, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied[path], s.applies
}

// Watched returns the number of open watches.
func (s *Server) Watched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	away, held, shown := s.away, s.held[r.URL.Path], s.shown[r.URL.Path]
	s.mu.Unlock()
	if held != nil {
		held.once.Do(func() { close(held.asked) })
		select {
		case <-held.answer:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case away:
		status(w, http.StatusServiceUnavailable, "", "it is away")
	case r.Method == http.MethodPatch:
		s.apply(w, r)
	case r.Method == http.MethodGet && shown != nil:
		_, _ = w.Write(shown)
	case strings.HasSuffix(r.URL.Path, "/eviction"):
		s.evict(w, parts[3]+"/"+parts[5])
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events"):
		var e corev1.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			status(w, http.StatusBadRequest, "", err.Error())
			return
		}
		s.mu.Lock()
		s.events = append(s.events, e)
		s.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(e)
	case r.Method == http.MethodGet && parts[0] == "api":
		which := watched{resource: parts[len(parts)-1]}
		if len(parts) > 4 {
			which.namespace = parts[3]
		}
		if name, is := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); is {
			which.name = name
		}
		if r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1" {
			s.watch(w, r, which)
		} else {
			s.list(w, which)
		}
	default:
		status(w, http.StatusNotFound, "", "nothing is here")
	}
}

func (s *Server) evict(w http.ResponseWriter, pod string) {
	s.mu.Lock()
	refuse := s.refuse
	s.evicted = append(s.evicted, pod)
	s.mu.Unlock()
	code, cause := 0, ""
	if refuse != nil {
		code, cause = refuse(pod)
	}
	if code != 0 {
		status(w, code, cause, "Cannot evict pod")
		return
	}
	status(w, http.StatusCreated, "", "")
}

// apply stores the object. It refuses a status if the object does not exist
// yet.
func (s *Server) apply(w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Query().Get("fieldManager") == "" {
		status(w, http.StatusBadRequest, "", fmt.Sprint("no apply: ", err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if of, is := strings.CutSuffix(r.URL.Path, "/status"); is && s.applied[of] == nil {
		status(w, http.StatusNotFound, "", "no such object")
		return
	}
	s.applied[r.URL.Path] = body
	s.applies++
	_, _ = w.Write(body)
}

func (s *Server) list(w http.ResponseWriter, which watched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []json.RawMessage
	for _, o := range s.objects[which.resource] {
		if which.has(which.resource, o.meta) {
			items = append(items, o.text)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "v1", "kind": kinds[which.resource] + "List",
		"metadata": map[string]string{"resourceVersion": fmt.Sprint(s.version)}, "items": items,
	})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, which watched) {
	news := make(chan event, 1000)
	s.mu.Lock()
	var first []event
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range s.objects[which.resource] {
			if which.has(which.resource, o.meta) {
				first = append(first, event{"ADDED", o.text, o.meta})
			}
		}
		first = append(first, event{kind: "BOOKMARK", text: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":%q,"metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}`,
			kinds[which.resource], s.version, metav1.InitialEventsAnnotationKey)})
	}
	s.watches[news] = which
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, news)
		s.mu.Unlock()
	}()
	flush := w.(http.Flusher)
	send := func(e event) {
		fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", e.kind, e.text)
		flush.Flush()
	}
	w.WriteHeader(http.StatusOK)
	flush.Flush()
	for _, e := range first {
		send(e)
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-news:
			send(e)
		}
	}
}

// status answers with a Status object, like the API server.
func status(w http.ResponseWriter, code int, cause, message string) {
	st := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: int32(code), Message: message,
		Status: metav1.StatusSuccess,
	}
	if code >= 400 {
		st.Status = metav1.StatusFailure
		st.Reason = map[int]metav1.StatusReason{
			404: metav1.StatusReasonNotFound, 403: metav1.StatusReasonForbidden, 429: metav1.StatusReasonTooManyRequests,
			400: metav1.StatusReasonBadRequest, 503: metav1.StatusReasonServiceUnavailable,
		}[code]
	}
	if cause != "" {
		st.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseType(cause)}}}
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(st)
}
