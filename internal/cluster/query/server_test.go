package query

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/fetch"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/model/node"
)

// web is the question of the tests.
var web = Question{"shop", v1alpha1.RequestSeries{Family: "rtt_seconds"}, []string{"web-0"}}

// vector returns an answer of Prometheus with these samples.
func vector(samples ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}}`
}

// sample returns a sample of a pod. A sample without le is the time of a reading.
func sample(pod, le, value string) string {
	labels := fmt.Sprintf(`"pod":%q`, pod)
	if le != "" {
		labels += fmt.Sprintf(`,"le":%q`, le)
	}
	return fmt.Sprintf(`{"metric":{%s},"value":[1764460005.5,%q]}`, labels, value)
}

// several returns the number of series that are added up in a bucket of web-0.
func several(le, value string) string {
	return fmt.Sprintf(`{"metric":{"pod":"web-0","le":%q,"series":"number"},"value":[1764460005.5,%q]}`, le, value)
}

// good is an answer about web-0.
var good = vector(sample("web-0", "+Inf", "12"), sample("web-0", "0.25", "11"), sample("web-0", "0.005", "10"), sample("web-0", "", "1764460000.123"))

// ask asks a server the question of the tests.
func ask(t *testing.T, s promapi.Server) v1alpha1.QueriedService {
	t.Helper()
	if err := s.Check("--prometheus-url"); err != nil {
		t.Fatal(err)
	}
	c, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := Ask(t.Context(), c, web)
	if len(all) != 1 || all[0].Namespace != "shop" || all[0].Pod != "web-0" || all[0].Series.Family != "rtt_seconds" {
		t.Fatalf("%+v, %v", all, err)
	}
	if s := all[0]; (s.Trouble == "") != (s.At != nil) || len(s.Ends) != len(s.Counts) || s.Trouble != "" && s.Ends != nil {
		t.Errorf("%+v is neither an answer nor a reason", s)
	}
	return all[0]
}

// as answers with a text of JSON.
func as(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
	}
}

// TestAServerThatLiesIsNotBelieved asks servers that are slow, wrong, endless or send
// elsewhere. None may cost more than the patience.
func TestAServerThatLiesIsNotBelieved(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		as(good)(w, r)
	}))
	defer other.Close()
	one := func(le, value string) http.HandlerFunc {
		return as(vector(sample("web-0", le, value), sample("web-0", "+Inf", "12"), sample("web-0", "", "1764460000.123")))
	}
	at := func(value string) http.HandlerFunc {
		return as(vector(sample("web-0", "1", "1"), sample("web-0", "+Inf", "12"), sample("web-0", "", value)))
	}
	var buckets []string
	for i := range 200 {
		buckets = append(buckets, sample("web-0", fmt.Sprint(i), "9"))
	}
	buckets = append(buckets, sample("web-0", "", "1764460000"))
	for name, tc := range map[string]struct {
		handle http.HandlerFunc
		want   node.SourceTrouble
	}{
		"good":                 {as(good), ""},
		"nothing":              {as(vector()), node.TroubleAbsent},
		"another pod":          {as(strings.ReplaceAll(good, "web-0", "vault-0")), node.TroubleAbsent},
		"no pod":               {as(strings.ReplaceAll(good, `"pod":"web-0"`, `"job":"web-0"`)), node.TroubleAbsent},
		"not a number":         {one("1", "NaN"), node.TroubleDamaged},
		"no number":            {one("1", "many"), node.TroubleDamaged},
		"below zero":           {one("1", "-1"), node.TroubleDamaged},
		"half a request":       {one("1", "1.5"), node.TroubleDamaged},
		"endless":              {one("1", "+Inf"), node.TroubleDamaged},
		"too many requests":    {one("1", "1e17"), node.TroubleDamaged},
		"a bound that is none": {one("x", "1"), node.TroubleDamaged},
		"a bound of NaN":       {one("NaN", "1"), node.TroubleDamaged},
		"a long bound":         {one("1"+strings.Repeat("0", maxEnd), "1"), node.TroubleDamaged},
		"other buckets":        {as(strings.Replace(good, "]}}", ","+several("0.25", "2")+","+several("+Inf", "1")+"]}}", 1)), node.TroubleDamaged},
		"two series in each":   {as(strings.Replace(good, "]}}", ","+several("0.25", "2")+","+several("+Inf", "2")+"]}}", 1)), ""},
		"no time":              {as(vector(sample("web-0", "+Inf", "12"))), node.TroubleDamaged},
		"only a time":          {as(vector(sample("web-0", "", "1764460000"))), node.TroubleDamaged},
		"two times":            {as(vector(sample("web-0", "+Inf", "12"), sample("web-0", "", "1764460000"), sample("web-0", "", "1764460001"))), node.TroubleDamaged},
		"a time before all":    {at("-1"), node.TroubleDamaged},
		"a time after all":     {at("1e300"), node.TroubleDamaged},
		"a time that is none":  {at("NaN"), node.TroubleDamaged},
		"a native histogram":   {as(vector(`{"metric":{"pod":"web-0"},"histogram":[1764460005,{"count":"1"}]}`)), node.TroubleDamaged},
		"many buckets":         {as(vector(buckets...)), node.TroubleTooLarge},
		"not complete":         {as(strings.Replace(good, `"success"`, `"success","warnings":["a store is away"]`, 1)), node.TroublePartial},
		"an error":             {as(`{"status":"error","errorType":"bad_data","error":"parse error"}`), node.TroubleContent},
		"a matrix":             {as(strings.Replace(good, `"vector"`, `"matrix"`, 1)), node.TroubleContent},
		"torn":                 {as(good[:len(good)/2]), node.TroubleContent},
		"other JSON":           {as(`["status"]`), node.TroubleContent},
		"other values":         {as(strings.ReplaceAll(good, "1764460005.5,", "")), node.TroubleDamaged},
		"HTML": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, good)
		}, node.TroubleContent},
		"compressed": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			as(good)(w, r)
		}, node.TroubleContent},
		"refuses":      {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, good, http.StatusUnprocessableEntity) }, node.TroubleStatus},
		"redirects":    {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, node.TroubleRedirect},
		"hangs up":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, node.TroubleConnect},
		"says nothing": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, node.TroubleSlow},
		"10^6 series":  {million, node.TroubleTooLarge},
		"drips":        {drip, node.TroubleSlow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(tc.handle)
			defer s.Close()
			begun := time.Now()
			got := ask(t, promapi.Server{URL: s.URL})
			if got.Trouble != string(tc.want) {
				t.Errorf("%+v, want %q", got, tc.want)
			}
			if tc.want == "" && (!slices.Equal(got.Ends, []string{"0.005", "0.25", "+Inf"}) || !slices.Equal(got.Counts, []int64{10, 11, 12}) || !got.At.Time.Equal(time.UnixMilli(1764460000123))) {
				t.Errorf("read %+v", got)
			}
			if took := time.Since(begun); took > 5*fetch.Patience {
				t.Errorf("one question took %v", took)
			}
		})
	}
	t.Cleanup(func() {
		if elsewhere.Load() > 0 {
			t.Error("a redirection was followed")
		}
	})
}

// million answers with a million series of one pod.
func million(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, strings.TrimSuffix(vector(), "]}}"))
	for i := 0; i < 1e6 && r.Context().Err() == nil; i++ {
		fmt.Fprint(w, sample("web-0", fmt.Sprint(i), "1"), ",")
	}
}

// drip answers a space at a time.
func drip(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for r.Context().Err() == nil {
		fmt.Fprint(w, " ")
		w.(http.Flusher).Flush()
		time.Sleep(10 * time.Millisecond)
	}
}

// TestTheAdministratorDescribesTheServer asks a server with TLS that wants a token and
// the ID of a tenant, and one that has another name than its certificate.
func TestTheAdministratorDescribesTheServer(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/prom/api/v1/query", r.Method != http.MethodGet, r.URL.Query().Get("timeout") != "2s":
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != "Bearer secret", r.Header.Get("X-Scope-OrgID") != "team":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			as(good)(w, r)
		}
	}))
	defer s.Close()
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := promapi.Server{
		URL: s.URL + "/prom", CAFile: write("ca", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
		TokenFile: write("token", []byte("secret\n")), Headers: map[string]string{"x-scope-orgid": "team"},
	}
	for name, tc := range map[string]struct {
		change func(s *promapi.Server)
		want   node.SourceTrouble
	}{
		"as described":      {func(*promapi.Server) {}, ""},
		"with a slash":      {func(s *promapi.Server) { s.URL += "/" }, ""},
		"another tenant":    {func(s *promapi.Server) { s.Headers = nil }, node.TroubleStatus},
		"another token":     {func(s *promapi.Server) { s.TokenFile = write("old", []byte("old")) }, node.TroubleStatus},
		"another name":      {func(s *promapi.Server) { s.URL = strings.Replace(s.URL, "127.0.0.1", "localhost", 1) }, node.TroubleTLS},
		"another authority": {func(s *promapi.Server) { s.CAFile = "" }, node.TroubleTLS},
		"without TLS":       {func(s *promapi.Server) { s.URL, s.CAFile = strings.Replace(s.URL, "https", "http", 1), "" }, node.TroubleStatus},
	} {
		one := whole
		tc.change(&one)
		if got := ask(t, one); got.Trouble != string(tc.want) {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
	}
	for name, change := range map[string]func(s *promapi.Server){
		"no token":                    func(s *promapi.Server) { s.TokenFile = filepath.Join(dir, "none") },
		"an empty token":              func(s *promapi.Server) { s.TokenFile = write("empty", nil) },
		"no authorities":              func(s *promapi.Server) { s.CAFile = filepath.Join(dir, "none") },
		"authorities that are no PEM": func(s *promapi.Server) { s.CAFile = whole.TokenFile },
	} {
		one := whole
		change(&one)
		if _, err := one.Open(); err == nil {
			t.Errorf("%s: the server is opened", name)
		}
	}
}
