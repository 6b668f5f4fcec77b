package promapi

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAServerIsCheckedBeforeItIsAsked checks the flags.
func TestAServerIsCheckedBeforeItIsAsked(t *testing.T) {
	for _, s := range []Server{{}, {URL: "http://prometheus:9090"}, {URL: "https://a.example/prom/", CAFile: "ca", TokenFile: "token", Headers: map[string]string{"X-Scope-OrgID": "a b"}}, {URL: "http://a", User: "me", PasswordFile: "x"}} {
		if err := s.Check("--url"); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, s := range []Server{
		{CAFile: "ca"}, {TokenFile: "token"}, {Headers: map[string]string{"A": "b"}}, {URL: "prometheus:9090"}, {URL: "ftp://a"}, {URL: "http://"}, {URL: "http://user@a"},
		{URL: "http://a?b"}, {URL: "http://a#b"}, {URL: "http://[a"}, {URL: "http://a", CAFile: "ca"}, {URL: "http://a", Headers: map[string]string{"A b": "c"}},
		{URL: "http://a", User: "me"}, {URL: "http://a", Password: "x"}, {URL: "http://a", User: "me", Password: "x", TokenFile: "y"}, {User: "me"}, {PasswordFile: "x"},
		{URL: "http://a", Headers: map[string]string{"": "c"}}, {URL: "http://a", Headers: map[string]string{"A": "c\r\nd: e"}},
	} {
		if s.Check("--url") == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}

// TestNoErrorOfAServerHasAPassword checks URLs that have one.
func TestNoErrorOfAServerHasAPassword(t *testing.T) {
	for _, url := range []string{"http://me:s3cr3t@host", "http://host?token=s3cr3t", "http://me:s3cr3t@[host", "ftp://me:s3cr3t@host#x", "me:s3cr3t@host:9090", "http://s3cr3t?x@host", "http://me:1/s3cr3t@host"} {
		s := Server{URL: url, Token: "s3cr3t", Password: "s3cr3t"}
		err := s.Check("--url")
		if err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", url, err)
		}
		s.URL = ""
		if text := fmt.Sprintf("%v %+v %#v", s, s, s); strings.Contains(text, "s3cr3t") {
			t.Error(text)
		}
	}
}

// TestASecretIsOneLine has files that are empty, and secrets of several lines. No error
// has a part of one.
func TestASecretIsOneLine(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, blank, two, one := file("empty", ""), file("blank", " \r\n\n"), file("two", "s3cr3t\ns3cr3t\n"), file("one", "\ns3cr3t \n")
	for _, c := range []struct {
		server Server
		want   string
	}{
		{Server{TokenFile: empty}, "is empty"},
		{Server{TokenFile: blank}, "is empty"},
		{Server{User: "me", PasswordFile: empty}, "is empty"},
		{Server{TokenFile: two}, "more than one line"},
		{Server{User: "me", PasswordFile: two}, "more than one line"},
		{Server{Token: "s3cr3t\ns3cr3t"}, "more than one line"},
		{Server{TokenFile: one}, ""},
		{Server{User: "me", PasswordFile: one}, ""},
		{Server{}, ""},
	} {
		c.server.URL = "http://127.0.0.1:1"
		client, err := c.server.Open()
		switch {
		case err == nil:
			client.Close()
			if c.want != "" {
				t.Errorf("%+v is opened", c.server)
			}
		case c.want == "" || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cr3t"):
			t.Errorf("%+v: %v, want %q", c.server, err, c.want)
		}
	}
}

// TestASecretIsHiddenWhole has a server that repeats secrets where an error is cut, without
// their scheme, and as a value.
func TestASecretIsHiddenWhole(t *testing.T) {
	body := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !strings.HasPrefix(body, "{") {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	const token, basic = "t0ken-t0ken-t0ken-t0ken", "bWU6cQ==" // of me:q
	for _, c := range []struct {
		server       Server
		body, secret string
	}{
		{Server{Token: token}, strings.Repeat(".", maxDetail-8) + token, "t0k"},
		{Server{Token: token}, strings.Repeat(".", maxDetail-30) + token, "t0k"},
		{Server{Token: token}, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[["` + strings.Repeat(".", 30) + token + `","1"]]}]}}`, "t0k"},
		{Server{Token: token}, `{"status":"` + token + `"}`, "t0k"},
		{Server{User: "me", Password: "q"}, "got " + basic, "bWU6"},
		{Server{User: "me", Password: "q"}, "got Basic " + basic, "bWU6"},
	} {
		body, c.server.URL = c.body, s.URL
		client, err := c.server.Open()
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Evaluate(t.Context(), "up", Span{First: 1, Last: 1}, time.Minute)
		client.Close()
		if err == nil || strings.Contains(err.Error(), c.secret) || !strings.Contains(err.Error(), hidden) && len(c.body) < maxDetail-9 {
			t.Errorf("%s: %v", c.body, err)
		}
	}
}

// TestAQueryIsTooLargeOnlyWithAConnection has a network that accepts, and then is silent:
// with TLS, there is no connection, and without it the server may need more time.
func TestAQueryIsTooLargeOnlyWithAConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for scheme, want := range map[string]Cause{"http": TooMuch, "https": Busy} {
		c, err := Server{URL: scheme + "://" + l.Addr().String()}.Open()
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Evaluate(t.Context(), "up", Span{First: 1, Last: 1}, 200*time.Millisecond)
		c.Close()
		if r, is := errors.AsType[*Refusal](err); !is || r.Cause != want || r.Status != 0 {
			t.Errorf("%s: %v, want the cause %s", scheme, err, want)
		}
	}
}

// TestAnExpressionHasAValueAtEachTime asks over a span and once, and reads numbers of all
// kinds.
func TestAnExpressionHasAValueAtEachTime(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once := strings.HasSuffix(r.URL.Path, "/api/v1/query")
		switch {
		case once && r.FormValue("time") == "60" && r.FormValue("query") == "up":
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[60,"1.5"]},{"metric":{},"value":[60,"NaN"]}]}}`)
		case !once && r.FormValue("start")+" "+r.FormValue("end")+" "+r.FormValue("step") == "60 240 60":
			fmt.Fprint(w, `{"status":"success","infos":["a note"],"data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[60,"1"],[120,"NaN"],[180,"+Inf"],[240.000,"1e3"]]}]}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	c, err := Server{URL: s.URL + "/"}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	once, err := c.Evaluate(t.Context(), "up", Span{First: 60, Last: 60}, time.Minute)
	if err != nil || len(once) != 2 || once[0].Labels["a"] != "b" || once[0].Values[0] != 1.5 || len(once[1].Values) != 0 {
		t.Errorf("%+v, %v", once, err)
	}
	all, err := c.Evaluate(t.Context(), "up", Span{60, 240, 60}, time.Minute)
	if err != nil || len(all) != 1 || !slices.Equal(all[0].At, []int64{60, 240}) || !slices.Equal(all[0].Values, []float64{1, 1000}) || !slices.Equal(all[0].Odd, []int64{120, 180}) {
		t.Errorf("%+v, %v", all, err)
	}
	_, err = c.Evaluate(t.Context(), "other", Span{First: 1, Last: 1}, time.Minute)
	if r, is := errors.AsType[*Refusal](err); !is || r.Cause != Wrong || r.Status != http.StatusNotFound {
		t.Errorf("%v", err)
	}
}
