package pull

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/cluster/past"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/prospect"
)

// now is the time of the tests, and days the days before it.
var now = time.Date(2026, 11, 24, 9, 30, 0, 0, time.UTC)

func rules() overcommit.Config {
	return overcommit.Config{Enable: true, CPU: overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, Memory: overcommit.Reclaim{ThresholdPercent: 65, Policy: overcommit.ByUsage}}
}

// A fake answers as a Prometheus server does for these queries alone: it knows what a
// query is about by the names in it. All nodes have cAdvisor's and kube-state-metrics'
// series. A server of Prometheus cannot be made to fail in these ways.
type fake struct {
	t     *testing.T
	nodes int
	// limit is the most nodes and the most seconds of a query; 0: none.
	limit, seconds int
	// gone are more nodes, which were there in the first two days, and late says that the
	// server read nothing at the end of the last day.
	gone int
	late bool
	odd  float64 // one value of node 2 each day; 0: none
	// before may answer a query in place of the server. n counts queries from 1 on.
	before func(n int, w http.ResponseWriter, r *http.Request) bool
	asked  atomic.Int64
	most   atomic.Int64 // points in one series
	texts  []string     // of all queries over a span
	open   atomic.Int64
}

func (f *fake) name(i int) string { return fmt.Sprintf("hidden-node-%03d", i) }

// named finds the nodes in a query.
var named = regexp.MustCompile(`node=~"([^"]*)"`)

// line returns a series in the form of the API.
func line(labels map[string]string, at, values []string) map[string]any {
	pairs := make([][2]any, len(at))
	for i := range at {
		pairs[i] = [2]any{json.Number(at[i]), values[i]}
	}
	return map[string]any{"metric": labels, "values": pairs}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.open.Add(1) > 1 {
		f.t.Error("two queries at a time")
	}
	defer f.open.Add(-1)
	n := int(f.asked.Add(1))
	if err := r.ParseForm(); err != nil {
		f.t.Error(err)
	}
	text := r.Form.Get("query")
	if strings.HasSuffix(r.URL.Path, "_range") {
		f.texts = append(f.texts, text)
	}
	if f.before != nil && f.before(n, w, r) {
		return
	}
	number := func(name string) int64 {
		v, err := strconv.ParseInt(r.Form.Get(name), 10, 64)
		if err != nil {
			f.t.Errorf("%s of %s: %v", name, text, err)
		}
		return v
	}
	if strings.HasSuffix(r.URL.Path, "/query") {
		f.answer(w, f.instant(text, number("time")))
		return
	}
	first, last, every := number("start"), number("end"), number("step")
	if points := (last-first)/every + 1; points > 11_000 { // as Prometheus does
		http.Error(w, `{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution"}`, http.StatusBadRequest)
		return
	} else if points > f.most.Load() {
		f.most.Store(points)
	}
	of := named.FindStringSubmatch(text)
	if of == nil {
		f.t.Errorf("%s is about all nodes", text)
		return
	}
	nodes := strings.Split(of[1], "|")
	if f.limit > 0 && len(nodes) > f.limit || f.seconds > 0 && int(last-first) > f.seconds {
		http.Error(w, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}`, http.StatusUnprocessableEntity)
		return
	}
	var lines []map[string]any
	for _, name := range nodes {
		i, err := strconv.Atoi(strings.TrimPrefix(name, "hidden-node-"))
		if err != nil {
			f.t.Errorf("%s in %s", name, text)
			continue
		}
		lines = append(lines, f.series(text, i, first, last, every)...)
	}
	f.answer(w, lines)
}

func (f *fake) answer(w http.ResponseWriter, lines []map[string]any) {
	if lines == nil {
		lines = []map[string]any{}
	}
	kind := "matrix"
	if len(lines) > 0 && lines[0]["value"] != nil {
		kind = "vector"
	}
	text, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": kind, "result": lines}})
	if err != nil {
		f.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // a client may have gone
}

// used returns the use of a node at a time, in CPUs.
func used(i int, at int64) float64 {
	return 4 + float64(i%7) + 2*math.Sin(float64(at)/86400*2*math.Pi)
}

// series returns the series of node i in the answer to a query.
func (f *fake) series(text string, i int, first, last, every int64) []map[string]any {
	labels := map[string]string{"node": f.name(i)}
	of := func(value func(int64) (float64, bool)) []map[string]any {
		var at, values []string
		for t := first; t <= last; t += every {
			if v, has := value(t); has {
				at, values = append(at, strconv.FormatInt(t, 10)), append(values, strconv.FormatFloat(v, 'f', -1, 64))
			}
		}
		if len(at) == 0 {
			return nil
		}
		return []map[string]any{line(labels, at, values)}
	}
	share := func(v float64) []map[string]any {
		return of(func(t int64) (float64, bool) { return v * used(i, t), t%86400 != 7200 || i != 1 }) // a hole of node 1
	}
	switch {
	case strings.Contains(text, "kube_node_info"):
		return of(func(int64) (float64, bool) { return 1, true })
	case strings.Contains(text, "throttled"):
		labels["namespace"], labels["pod"] = "hidden-shop", fmt.Sprintf("hidden-web-5d9c7b6f4-%05d", i)
		return of(func(t int64) (float64, bool) { return 0.5, i%3 == 0 && t%86400 < 6*3600 })
	case strings.Contains(text, `id="/"`) && strings.Contains(text, "cpu"):
		return share(1)
	case strings.Contains(text, "kube_pod_owner"):
		return of(func(t int64) (float64, bool) {
			if f.odd != 0 && i == 2 && t%86400 == 10_800 {
				return f.odd, true
			}
			return 0.1 * used(i, t), t%86400 != 7200 || i != 1
		})
	case strings.Contains(text, "cpu"):
		return share(0.75)
	case strings.Contains(text, `id="/"`):
		return share(1 << 30)
	case strings.Contains(text, "memory"):
		return share(1 << 29)
	}
	f.t.Errorf("unknown query %s", text)
	return nil
}

// instant answers the queries of the survey.
func (f *fake) instant(text string, at int64) (lines []map[string]any) {
	add := func(value float64, labels map[string]string) {
		lines = append(lines, map[string]any{"metric": labels, "value": [2]any{at, strconv.FormatFloat(value, 'f', -1, 64)}})
	}
	switch {
	case strings.HasPrefix(text, "count by (cluster"), strings.HasPrefix(text, "count by (k8s_cluster"):
	case strings.HasPrefix(text, "max by (namespace, pod, owner_kind"):
		for i := range f.nodes {
			add(1, map[string]string{"namespace": "hidden-shop", "pod": fmt.Sprintf("hidden-web-5d9c7b6f4-%05d", i), "owner_kind": "ReplicaSet", "owner_name": "hidden-web-5d9c7b6f4"})
		}
	case strings.Contains(text, "kube_node_info"):
		last, lately := at == now.Unix()/86400*86400, strings.Contains(text, "[15m]")
		if last && lately && f.late {
			break
		}
		n := f.nodes
		if !last && !lately {
			n += f.gone
		}
		for i := range n {
			add(1, map[string]string{"node": f.name(i), "internal_ip": fmt.Sprintf("10.0.%d.%d", i/250, i%250)})
		}
	case strings.Contains(text, "kube_node_status_capacity"):
		for i := range f.nodes {
			add(16, map[string]string{"node": f.name(i), "resource": "cpu"})
			add(64<<30, map[string]string{"node": f.name(i), "resource": "memory"})
		}
	case strings.HasPrefix(text, "count by (node)"):
		for i := range f.nodes {
			add(100, map[string]string{"node": f.name(i)})
		}
	case strings.Contains(text, "kube_node_labels{label_karpenter"):
		for i := range f.nodes {
			add(1, map[string]string{"node": f.name(i), "label_karpenter_sh_nodepool": "hidden-pool-" + strconv.Itoa(i%2)})
		}
	case strings.Contains(text, "kube_node_labels"), strings.Contains(text, "kube_pod_status_qos_class"), strings.Contains(text, "kubernetes_io_batch"), strings.Contains(text, "_seconds_total") && strings.Contains(text, "throttled"), strings.HasPrefix(text, "count by"):
	case strings.HasPrefix(text, "count("):
		add(1, nil)
	case strings.HasPrefix(text, "max(count_over_time"):
		add(120, nil)
	default:
		f.t.Errorf("unknown query %s", text)
	}
	return lines
}

// start starts the server, and returns options to read three days of it.
func (f *fake) start(t *testing.T) Options {
	f.t = t
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return Options{
		Server: promapi.Server{URL: s.URL}, Choice: Choice{Rules: rules(), Days: 3, Step: 5, AtOnce: 4}, Dir: filepath.Join(t.TempDir(), "past"), Now: now, Patience: 5 * time.Second,
		wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
}

// nodesOf returns all nodes of a past.
func nodesOf(t *testing.T, p *Past) (all []prospect.Node) {
	t.Helper()
	for n, err := range p.Nodes() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// filesOf returns the content of all files of a folder.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// unzipped returns the content of a compressed text, or "" if it is none.
func unzipped(t *testing.T, text string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		return ""
	}
	all, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// withoutURL returns the content of a folder without the address of the server.
func withoutURL(t *testing.T, o Options) map[string]string {
	t.Helper()
	all := filesOf(t, o.Dir)
	all[manifest] = strings.ReplaceAll(all[manifest], o.Server.URL, "")
	return all
}

// TestAnImportIsWhatTheServerHas reads ten nodes and compares them with what the server
// was made of.
func TestAnImportIsWhatTheServerHas(t *testing.T) {
	f := &fake{nodes: 10}
	o := f.start(t)
	p, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	all := nodesOf(t, p)
	if s := p.Summary(); len(all) != 10 || s.Known != 10 || s.Read != 10 || s.Unsized != 0 || s.Window.Days != 3 || s.Window.First != now.Unix()/day-3 {
		t.Fatalf("%d nodes, %+v", len(all), s)
	}
	for i, n := range all {
		if n.Name != f.name(i) || n.Pool != fmt.Sprintf("hidden-pool-%d", i%2) || n.CPU != 16_000 || n.Memory != 64<<30 || len(n.RoomCPU) != 3*288 || n.Start != (now.Unix()/day-3)*1440 {
			t.Fatalf("%+v", n)
		}
		for k := range n.RoomCPU {
			end := (n.Start + int64(k+1)*n.Step) * 60
			if i == 1 && end%86400 == 7200 {
				if n.RoomCPU[k] != prospect.Absent || n.UsedMemory[k] != prospect.Absent {
					t.Fatalf("a hole has %d and %d", n.RoomCPU[k], n.UsedMemory[k])
				}
				continue
			}
			u := used(i, end)
			if want := int64(math.Round(u * 1000)); n.UsedCPU[k] != want || n.RoomCPU[k] != max(9600-want, 0) || n.BatchCPU[k] != int64(math.Round(u*100)) {
				t.Fatalf("node %d, step %d: used %d, room %d, could be batch %d; used is %v CPUs", i, k, n.UsedCPU[k], n.RoomCPU[k], n.BatchCPU[k], u)
			}
			if free := int64(64*1024*65/100) - n.UsedMemory[k]; n.UsedMemory[k] < int64(u*1024)-1 || n.UsedMemory[k] > int64(u*1024)+1 || n.RoomMemory[k] < free-2 || n.RoomMemory[k] > free+1 {
				t.Fatalf("node %d, step %d: %d MiB used, %d free", i, k, n.UsedMemory[k], n.RoomMemory[k])
			}
		}
		var want []prospect.Hurt
		if i%3 == 0 {
			want = []prospect.Hurt{{Service: "hidden-shop/hidden-web", Minutes: 3 * 6 * 60}}
		}
		if diff := cmp.Diff(want, n.Hurt); diff != "" {
			t.Errorf("node %d: %s", i, diff)
		}
	}
	before := f.asked.Load()
	again, err := Read(t.Context(), o)
	if err != nil || f.asked.Load() != before {
		t.Fatalf("a finished folder asks the server %d times: %v", f.asked.Load()-before, err)
	}
	if diff := cmp.Diff(all, nodesOf(t, again)); diff != "" {
		t.Error(diff)
	}
	for name, change := range map[string]func(*Options){"days": func(o *Options) { o.Days = 2 }, "step": func(o *Options) { o.Step = 10 }, "sample": func(o *Options) { o.Sample = 3 }, "rules": func(o *Options) { o.Rules.CPU.ThresholdPercent = 50 },
		"tenant": func(o *Options) { o.Server.Headers = map[string]string{"x-scope-orgid": "b"} }, "user": func(o *Options) { o.Server.User, o.Server.Password = "b", "x" }} {
		other := o
		change(&other)
		said := map[string]string{"days": "days is 3 there, not 2", "step": "step-minutes is 5 there, not 10", "sample": "sample is 0 there, not 3", "rules": "the rules of the room", "tenant": "the user or the headers", "user": "the user or the headers"}
		if _, err := Read(t.Context(), other); !errors.Is(err, ErrOther) || !strings.HasSuffix(err.Error(), "("+said[name]+")") {
			t.Errorf("other %s: %v", name, err)
		}
	}
	same := o
	same.Server.Token, same.Server.Headers = "new", map[string]string{"authorization": "s3cr3t", "Cookie": "s3cr3t"}
	if _, err := Read(t.Context(), same); err != nil || f.asked.Load() != before {
		t.Errorf("a new token makes it another reading: %v", err)
	}
	later := o
	later.Now = now.Add(30 * time.Hour) // it was broken off for a night
	if p, err := Read(t.Context(), later); err != nil || p.Summary().Window != again.Summary().Window {
		t.Errorf("a folder does not keep its days: %v", err)
	}
}

// TestABadServerGivesTheSameBytes reads the same nodes from servers that refuse, are
// slow, break off or have limits.
func TestABadServerGivesTheSameBytes(t *testing.T) {
	good := &fake{nodes: 10}
	of := good.start(t)
	if _, err := Read(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	want := withoutURL(t, of)
	status := func(code int, header, value string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n%3 != 0 {
				return false
			}
			w.Header().Set(header, value)
			w.WriteHeader(code)
			return true
		}
	}
	text := func(body string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n%4 == 0 {
				fmt.Fprint(w, body)
			}
			return n%4 == 0
		}
	}
	for name, bad := range map[string]*fake{
		"too many requests":   {before: status(http.StatusTooManyRequests, "Retry-After", "7")},
		"not available":       {before: status(http.StatusServiceUnavailable, "X", "")},
		"an error of a proxy": {before: status(http.StatusBadGateway, "Content-Type", "text/html")},
		"an error of its own": {before: status(http.StatusInternalServerError, "X", "")},
		"a limit of samples":  {limit: 3},
		"a limit of one node": {limit: 1},
		"a limit of hours":    {seconds: 6 * 3600},
		"half an answer":      {before: text(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"node":"hidden-node-001"},"values":[[17`)},
		"a part of the data":  {before: text(`{"status":"success","warnings":["a store is away"],"data":{"resultType":"matrix","result":[]}}`)},
		"a connection that end": {before: func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n%5 == 0 {
				panic(http.ErrAbortHandler)
			}
			return false
		}},
		"a timeout of the server": {before: func(_ int, w http.ResponseWriter, r *http.Request) bool {
			of := named.FindStringSubmatch(r.Form.Get("query"))
			slow := of != nil && strings.Count(of[1], "|") > 1 && strings.HasSuffix(r.URL.Path, "_range")
			if slow {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`)
			}
			return slow
		}},
		"no POST": {before: func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusMethodNotAllowed)
			}
			return r.Method == http.MethodPost
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bad.nodes = 10
			o := bad.start(t)
			waited := time.Duration(0)
			o.wait = func(_ context.Context, d time.Duration) error { waited = max(waited, d); return nil }
			if _, err := Read(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, withoutURL(t, o)); diff != "" {
				t.Error("the folder has other bytes")
			}
			if bad.asked.Load() <= good.asked.Load() {
				t.Error("the server was not bad")
			}
			if name == "too many requests" && waited != 7*time.Second {
				t.Errorf("the longest wait was %v, and the server said 7 s", waited)
			}
		})
	}
	if m := good.most.Load(); m != 288 {
		t.Errorf("a query has up to %d points", m)
	}
}

// TestAnImportGoesOnWhereItWasBrokenOff breaks it off after each number of queries.
func TestAnImportGoesOnWhereItWasBrokenOff(t *testing.T) {
	good := &fake{nodes: 6}
	of := good.start(t)
	of.AtOnce = 3
	if _, err := Read(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	want, needs := withoutURL(t, of), good.asked.Load()
	f := &fake{nodes: 6}
	o := f.start(t)
	o.AtOnce = 3
	breaks := 0
	for {
		// The first attempts end before the first part, and the others in one of the
		// next parts, which take eight queries each.
		stop := f.asked.Load() + 9
		if breaks == 1 {
			stop += needs - 6*8 // after what the server has is known
		}
		ctx, cancel := context.WithCancel(t.Context())
		f.before = func(int, http.ResponseWriter, *http.Request) bool {
			if f.asked.Load() == stop {
				cancel()
			}
			return false
		}
		_, err := Read(ctx, o)
		cancel()
		for f.open.Load() > 0 {
			time.Sleep(time.Millisecond) // the server answers a client that has gone
		}
		if err == nil {
			break
		}
		breaks++
		how := "the same command with --keep " + o.Dir
		if breaks == 1 {
			how = "nothing is in " + o.Dir + " yet, and the same command begins again"
		}
		if !strings.Contains(err.Error(), how) || !strings.HasSuffix(err.Error(), ": interrupted") {
			t.Errorf("it does not say how to go on: %v", err)
		}
		if !errors.Is(err, context.Canceled) || breaks > 40 {
			t.Fatalf("after %d breaks: %v", breaks, err)
		}
	}
	if diff := cmp.Diff(want, withoutURL(t, o)); diff != "" || breaks < 4 {
		t.Errorf("after %d breaks, the folder has other bytes:\n%s", breaks, diff)
	}
	if f.asked.Load() > 3*needs {
		t.Errorf("%d queries in place of %d: parts are read again", f.asked.Load(), needs)
	}
}

// TestAServerThatNeverAnswersIsAnErrorThatNamesTheQuery has failures for good.
func TestAServerThatNeverAnswersIsAnErrorThatNamesTheQuery(t *testing.T) {
	always := func(code int, body string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(n int, w http.ResponseWriter, r *http.Request) bool {
			bad := strings.HasSuffix(r.URL.Path, "_range")
			if bad {
				w.WriteHeader(code)
				fmt.Fprint(w, body)
			}
			return bad
		}
	}
	for name, tc := range map[string]struct {
		before func(int, http.ResponseWriter, *http.Request) bool
		cause  promapi.Cause
		tries  int
	}{
		"the token is wrong":    {always(http.StatusUnauthorized, "no"), promapi.Wrong, 1},
		"the query is wrong":    {always(http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"parse error"}`), promapi.Wrong, 1},
		"always busy":           {always(http.StatusTooManyRequests, ""), promapi.Busy, tries},
		"always too much":       {always(http.StatusUnprocessableEntity, `{"status":"error","errorType":"execution","error":"found duplicate series for {node=\"hidden-node-000\"}"}`), promapi.TooMuch, 1},
		"another page":          {always(http.StatusOK, `{"status":"success","data":{"resultType":"string","result":[]}}`), promapi.Wrong, 1},
		"a page of HTML":        {always(http.StatusOK, "<html>"), promapi.Busy, tries},
		"values that none want": {always(http.StatusOK, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"node":"hidden-node-000"},"values":[["x","1"]]}]}}`), promapi.Wrong, 1},
	} {
		f := &fake{nodes: 2, before: tc.before}
		o := f.start(t)
		_, err := Read(t.Context(), o)
		failed, is := errors.AsType[*Failure](err)
		refused, was := errors.AsType[*promapi.Refusal](err)
		if !is || !was || refused.Cause != tc.cause || failed.Tries != tc.tries || !strings.Contains(failed.Text, "hidden-node-000") || !strings.Contains(err.Error(), failed.What) {
			t.Errorf("%s: %v", name, err)
		}
		o.Anonymous = true
		if _, err := Read(t.Context(), o); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: the error has names: %v", name, err)
		}
	}
}

// TestAnAnonymousErrorHasNoQuery has a proxy that lets nobody send, and breaks off each
// answer to a GET, whose address has the query.
func TestAnAnonymousErrorHasNoQuery(t *testing.T) {
	f := &fake{nodes: 2}
	f.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return true
		}
		if strings.HasSuffix(r.URL.Path, "_range") {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	o := f.start(t)
	o.Anonymous = true
	var said strings.Builder
	o.Report = func(p Progress) { fmt.Fprintf(&said, "%v\n", p.Err) }
	_, err := Read(t.Context(), o)
	if failed, is := errors.AsType[*Failure](err); !is || failed.Tries != tries || len(f.texts) == 0 {
		t.Fatalf("%v", err)
	}
	if text := said.String() + err.Error(); strings.Contains(text, "hidden") || !strings.Contains(text, "EOF") {
		t.Errorf("the errors have names, or no reason: %.2000s", text)
	}
}

// TestAnAddressWithoutAServerIsSaidSoon has an address that refuses connections.
func TestAnAddressWithoutAServerIsSaidSoon(t *testing.T) {
	f := &fake{nodes: 1}
	o := f.start(t)
	o.Server.URL = "http://127.0.0.1:1"
	_, err := Read(t.Context(), o)
	if failed, is := errors.AsType[*Failure](err); !is || failed.Tries != firstTries {
		t.Errorf("%v", err)
	}
}

// TestASlowServerIsAskedForLess has a server that takes too long for four nodes.
func TestASlowServerIsAskedForLess(t *testing.T) {
	f := &fake{nodes: 4}
	f.before = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if of := named.FindStringSubmatch(r.Form.Get("query")); of != nil && strings.Count(of[1], "|") > 1 && strings.HasSuffix(r.URL.Path, "_range") {
			<-r.Context().Done()
			return true
		}
		return false
	}
	o := f.start(t)
	o.Patience, o.Days = time.Second, 1
	p, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if all := nodesOf(t, p); len(all) != 4 || all[3].RoomCPU[100] == prospect.Absent {
		t.Errorf("%d nodes", len(all))
	}
}

// TestAfterAStallQueriesGrowAgain has a network that stands still in the first part.
func TestAfterAStallQueriesGrowAgain(t *testing.T) {
	f := &fake{nodes: 8}
	stalls := 0
	f.before = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "_range") || stalls == 2 {
			return false
		}
		stalls++
		<-r.Context().Done()
		return true
	}
	o := f.start(t)
	o.Patience = 300 * time.Millisecond
	if _, err := Read(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	last := f.texts[len(f.texts)-1]
	if n := strings.Count(named.FindString(last), "|") + 1; n != 4 || strings.Count(named.FindString(f.texts[2]), "|") != 0 {
		t.Errorf("the last query is about %d nodes: %s", n, last)
	}
}

// TestQueriesGrowSeldomOnASlowServer counts the queries that are too large for a server
// with a limit of 10 nodes.
func TestQueriesGrowSeldomOnASlowServer(t *testing.T) {
	p := &puller{Options: Options{Choice: Choice{AtOnce: 50}}, most: 50}
	refused := 0
	for range 500 {
		before := p.most
		for p.most > 10 {
			refused++
			p.most = (p.most + 1) / 2
		}
		p.kept(before)
	}
	if refused > 15 || p.most > 14 {
		t.Errorf("%d queries of 500 parts are too large, and the next one has %d nodes", refused, p.most)
	}
}

// TestNoSecretIsKeptOrSaid looks for secrets in errors, in the progress and in the
// folder. The server repeats what it was sent.
func TestNoSecretIsKeptOrSaid(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]promapi.Server{
		"a token in a file":       {TokenFile: file},
		"a token":                 {Token: "s3cr3t"},
		"a user":                  {User: "me", PasswordFile: file},
		"a user and no file":      {User: "me", Password: "s3cr3t"},
		"a token and two headers": {Token: "s3cr3t", Headers: map[string]string{"X-Scope-OrgID": "team"}},
	} {
		var sent atomic.Int64
		f := &fake{nodes: 2}
		f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
			user, password, basic := r.BasicAuth()
			if r.Header.Get("Authorization") == "Bearer s3cr3t" || basic && user == "me" && password == "s3cr3t" {
				sent.Add(1)
			}
			bad := n%5 == 0 || n > 60
			if bad {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintf(w, `{"status":"error","error":%q}`, "s3cr3t is not "+r.Header.Get("Authorization"))
			}
			return bad
		}
		o := f.start(t)
		var said strings.Builder
		o.Report = func(p Progress) { fmt.Fprintf(&said, "%+v %v\n", p, p.Err) }
		s.URL = o.Server.URL
		o.Server = s
		_, err := Read(t.Context(), o)
		if err == nil || sent.Load() != f.asked.Load() {
			t.Fatalf("%s: %v, sent with %d of %d queries", name, err, sent.Load(), f.asked.Load())
		}
		fmt.Fprintf(&said, "%v %+v %#v %+v", err, err, o, s)
		for file, text := range filesOf(t, o.Dir) {
			said.WriteString(file + text + unzipped(t, text))
		}
		for _, secret := range []string{"s3cr3t", "bWU6czNjcjN0"} { // and me:s3cr3t in base64
			if strings.Contains(said.String(), secret) {
				t.Errorf("%s: a secret was said or kept:\n%.2000s", name, said.String())
			}
		}
		if !strings.Contains(said.String(), "(secret) is not") {
			t.Errorf("%s: the words of the server are gone", name)
		}
	}
}

// TestAnonymousNodesHaveNoNames looks for names in all that is returned.
func TestAnonymousNodesHaveNoNames(t *testing.T) {
	f := &fake{nodes: 10}
	o := f.start(t)
	o.Anonymous = true
	var said strings.Builder
	f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n%7 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "try again")
		}
		return n%7 == 0
	}
	o.Report = func(p Progress) { fmt.Fprintf(&said, "%+v\n", p) }
	p, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	hurt := 0
	for _, n := range nodesOf(t, p) {
		fmt.Fprintf(&said, "%+v\n", n)
		hurt += len(n.Hurt)
	}
	if strings.Contains(said.String(), "hidden") {
		t.Errorf("%.1000s", said.String())
	}
	if hurt == 0 || !strings.Contains(said.String(), "node-10") || !strings.Contains(said.String(), "pool-2") || !strings.Contains(said.String(), "namespace-1/service-1") {
		t.Error("numbers are missing")
	}
}

// TestAServerWithoutNodesIsAnError has servers that know too little.
func TestAServerWithoutNodesIsAnError(t *testing.T) {
	for want, lacks := range map[error]string{
		ErrNoNodes:    `kube_node_info|container_|node_cpu|node_memory`,
		ErrNoUse:      `container_|node_cpu|node_memory`,
		ErrNoLabel:    `count by \(`,
		ErrNoSize:     `kube_node_status|machine_|node_cpu|node_memory`,
		ErrNoRequests: `kube_pod_container_resource_requests`,
	} {
		is := regexp.MustCompile(lacks)
		f := &fake{nodes: 2}
		f.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			bad := is.MatchString(r.Form.Get("query"))
			if bad {
				fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			}
			return bad
		}
		o := f.start(t)
		if errors.Is(want, ErrNoRequests) {
			o.Rules.Memory.Policy = overcommit.ByMaxUsageRequest
		}
		if _, err := Read(t.Context(), o); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if _, err := os.Stat(o.Dir); err == nil {
			t.Errorf("%v: a folder is left", want)
		}
	}
}

// TestANodeThatWasReplacedIsLeftOut has nodes of which three were gone on the last day.
func TestANodeThatWasReplacedIsLeftOut(t *testing.T) {
	for _, late := range []bool{false, true} {
		f := &fake{nodes: 5, gone: 3, late: late}
		p, err := Read(t.Context(), f.start(t))
		if err != nil {
			t.Fatal(err)
		}
		if s, n := p.Summary(), len(nodesOf(t, p)); n != 5 || s.Known != 5 || s.Gone != 3 || s.Read != 5 || s.Unsized != 0 {
			t.Errorf("%d nodes, %+v", n, s)
		}
	}
}

// TestASampleIsDrawnOnce checks that only the drawn nodes are asked for.
func TestASampleIsDrawnOnce(t *testing.T) {
	f := &fake{nodes: 40}
	o := f.start(t)
	o.Sample, o.Seed, o.Days = 6, 7, 1
	p, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	pools := map[string]int{}
	for _, n := range nodesOf(t, p) {
		pools[n.Pool]++
	}
	if s := p.Summary(); s.Known != 40 || s.Read != 6 || !maps.Equal(pools, map[string]int{"hidden-pool-0": 3, "hidden-pool-1": 3}) {
		t.Errorf("%+v, %v", s, pools)
	}
	asked := map[string]bool{}
	for _, text := range f.texts {
		if of := named.FindStringSubmatch(text); of != nil {
			for name := range strings.SplitSeq(of[1], "|") {
				asked[name] = true
			}
		}
	}
	if len(asked) != 6 {
		t.Errorf("%d nodes are asked for: %v", len(asked), slices.Sorted(maps.Keys(asked)))
	}
}

// TestAValueThatIsNoAmountIsUnknown has columns with a value below 0, or without a number:
// of the node, and of work that could be batch work, where no value means no work.
func TestAValueThatIsNoAmountIsUnknown(t *testing.T) {
	w := past.Window{First: 20_000, Days: 1, Step: 60}
	s := past.Sources{Label: "node", CPU: past.CAdvisor, Memory: past.CAdvisor, Owners: true}
	m := past.Machine{Name: "a", Size: past.Size{CPU: 16_000, Memory: 64 << 30}}
	at := func(step int64) int64 { return w.First*day + (step+1)*3600 }
	line := func(odd int64, values ...float64) []promapi.Line {
		l := promapi.Line{Labels: map[string]string{"node": "a"}, Values: values}
		for i := range values {
			l.At = append(l.At, at(int64(i)))
		}
		if odd >= 0 {
			l.Odd = []int64{at(odd)}
		}
		return []promapi.Line{l}
	}
	tab := newTable(w, w.First, []past.Machine{m})
	for column, lines := range map[past.Column][]promapi.Line{
		past.UsedCPU: line(-1, 4, -3, 4, 4, 0), past.PodsCPU: line(-1, 2, 2, 2, 2, 0), past.BatchCPU: line(3, 1, 1, -0.5),
		past.UsedMemory: line(-1, 1<<30, 1<<30, 1<<30, 1<<30, 1<<30), past.PodsMemory: line(-1, 1<<30, 1<<30, 1<<30, 1<<30, 1<<30),
	} {
		if err := tab.add(past.Query{Column: column, Label: "node"}, lines); err != nil {
			t.Fatal(err)
		}
	}
	tab.forget()
	n := w.Node(m, s, rules(), []*past.NodeDay{&tab.nodes[0]})
	for what, is := range map[string][2][]int64{
		"used":  {n.UsedCPU[:5], {4000, -1, -1, -1, 0}},
		"batch": {n.BatchCPU[:5], {1000, -1, -1, -1, 0}},
	} {
		if !slices.Equal(is[0], is[1]) {
			t.Errorf("%s: %v, want %v", what, is[0], is[1])
		}
	}
	for step, has := range []bool{true, false, false, false, true} {
		if (n.RoomCPU[step] >= 0) != has || (n.RoomMemory[step] >= 0) != has {
			t.Errorf("step %d has room of %d and %d", step, n.RoomCPU[step], n.RoomMemory[step])
		}
	}
}

// TestAnOddAnswerLeavesAHole has a server with one odd value a day about work that could
// be batch work.
func TestAnOddAnswerLeavesAHole(t *testing.T) {
	for _, odd := range []float64{-1, math.NaN(), math.Inf(1)} {
		f := &fake{nodes: 3, odd: odd}
		p, err := Read(t.Context(), f.start(t))
		if err != nil {
			t.Fatal(err)
		}
		n := nodesOf(t, p)[2]
		if k := 10_800/300 - 1; n.BatchCPU[k] != prospect.Absent || n.RoomCPU[k] != prospect.Absent || n.RoomCPU[k+1] < 0 || n.BatchCPU[k+1] < 1 {
			t.Errorf("%v: the step has %d of batch work and room of %d; the next one %d and %d", odd, n.BatchCPU[k], n.RoomCPU[k], n.BatchCPU[k+1], n.RoomCPU[k+1])
		}
	}
}

// TestPartsWithoutAManifestAreRefused also has a directory with other files, which may be
// used.
func TestPartsWithoutAManifestAreRefused(t *testing.T) {
	f := &fake{nodes: 2}
	o := f.start(t)
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(o.Dir, manifest)); err != nil {
		t.Fatal(err)
	}
	before := f.asked.Load()
	if _, err := Read(t.Context(), o); !errors.Is(err, ErrNoManifest) || f.asked.Load() != before {
		t.Errorf("parts of another reading would be used: %v", err)
	}
}

// TestADamagedPartIsAnError cuts a file. Once it is deleted, the part is read again.
func TestADamagedPartIsAnError(t *testing.T) {
	f := &fake{nodes: 2}
	o := f.start(t)
	p, err := Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	name := p.file(p.Window.First+1, 0)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for n, err := range p.Nodes() {
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "delete it") || n.Name != "" {
			t.Errorf("%+v, %v", n, err)
		}
	}
	wrong := slices.Clone(text)
	wrong[len(wrong)-8]++ // the checksum
	if err := os.WriteFile(name, wrong, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range p.Nodes() {
		if !errors.Is(err, gzip.ErrChecksum) || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("a wrong checksum: %v", err)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if p, err = Read(t.Context(), o); err != nil || len(nodesOf(t, p)) != 2 {
		t.Error(err)
	}
}
