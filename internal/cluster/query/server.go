package query

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/fetch"
	"tenon.sh/tenon/internal/model/node"
)

// A Server is a Prometheus server, or another one with the same API. The
// administrator describes it. The zero Server is none.
type Server struct {
	// URL is its address, below which the path api/v1/query is.
	URL string
	// CAFile has the authorities that may sign its certificate, in PEM, and TokenFile
	// a bearer token. Both are read again for each round. If they are empty, those of
	// the system apply, and there is no token.
	CAFile, TokenFile string
	// Headers are more headers of each request, such as the ID of a tenant.
	Headers map[string]string
}

// Check returns an error, in the words of the flags of tenon-manager, if a request to
// the server could not be made.
func (s Server) Check() error {
	u, err := url.Parse(s.URL)
	switch {
	case s.URL == "" && (s.CAFile != "" || s.TokenFile != "" || len(s.Headers) > 0):
		return errors.New("--prometheus-ca-file, --prometheus-token-file and --prometheus-header have no effect without --prometheus-url")
	case s.URL == "":
		return nil
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("--prometheus-url %q: want http:// or https:// with a host, and no user, query or fragment", s.URL)
	case u.Scheme == "http" && s.CAFile != "":
		return errors.New("--prometheus-ca-file has no effect without https:// in --prometheus-url")
	}
	for name, value := range s.Headers {
		if !isHeaderName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("--prometheus-header %q: want a name of letters, digits and -, and a value of printable ASCII", name)
		}
	}
	return nil
}

func isHeaderName(s string) bool {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}
	return s != "" && !strings.ContainsFunc(s, odd)
}

// A Client asks a server in one round of questions.
type Client struct {
	url     string
	headers http.Header
	http    *http.Client
}

// Open returns a client of the server. It opens no connection yet. The caller closes
// it.
func (s Server) Open() (*Client, error) {
	at, err := url.JoinPath(s.URL, "api/v1/query")
	if err != nil {
		return nil, err
	}
	c := &Client{url: at, headers: http.Header{"Accept": {"application/json"}}}
	for name, value := range s.Headers {
		c.headers.Set(name, value)
	}
	if s.TokenFile != "" {
		token, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token of Prometheus: %w", err)
		}
		c.headers.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	t := &http.Transport{MaxConnsPerHost: AtOnce, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if s.CAFile != "" {
		text, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of Prometheus: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the authorities of Prometheus: %s has no certificate in PEM", s.CAFile)
		}
	}
	c.http = fetch.NewClient(t)
	return c, nil
}

// Close closes the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// AtOnce is the number of questions that a client asks at the same time.
const AtOnce = 4

// Ask asks one question. It returns an answer for each of its pods, with a reading or
// the reason why there is none. It takes no longer than fetch.Patience. err has the
// details of a failure of the whole question, for a log.
func (c *Client) Ask(ctx context.Context, q Question) (all []v1alpha1.QueriedService, err error) {
	found, err := c.ask(ctx, q)
	if err != nil {
		return q.Unanswered(fetch.TroubleOf(err)), err
	}
	all = q.Unanswered(node.TroubleAbsent)
	for i, s := range all {
		if read, has := found[s.Pod]; has {
			read.Namespace, read.Pod, read.Series = s.Namespace, s.Pod, s.Series
			all[i] = read
		}
	}
	return all, nil
}

func (c *Client) ask(ctx context.Context, q Question) (map[string]v1alpha1.QueriedService, error) {
	text, is := q.PromQL()
	if !is {
		return nil, fetch.Fault(node.TroubleDamaged)
	}
	ctx, cancel := context.WithTimeout(ctx, fetch.Patience)
	defer cancel()
	parameters := url.Values{"query": {text}, "timeout": {fetch.Patience.String()}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"?"+parameters.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header = c.headers.Clone()
	answer, err := fetch.Get(c.http, request, "application/json")
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	return parse(answer)
}
