// Package promapi asks a Prometheus server, or another one with the same HTTP API.
package promapi

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/cluster/fetch"
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
	// User and PasswordFile are for basic authentication.
	User, PasswordFile string
	// Token and Password stand in place of their files if they are not empty.
	Token, Password Secret
	// Headers are more headers of each request, such as the ID of a tenant.
	Headers map[string]string
	// Proxy uses the proxy that the environment names.
	Proxy bool
}

// A Secret is a token or a password. It is never printed.
type Secret string

const hidden = "(secret)"

func (Secret) String() string { return hidden }

// GoString hides a secret from %#v.
func (Secret) GoString() string { return hidden }

// secret returns a secret, or else the content of the file. An empty file is an error: the
// server would be asked without a secret.
func secret(s Secret, file, what string) (Secret, error) {
	if s == "" && file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the %s of Prometheus: %w", what, err)
		}
		if s = Secret(strings.TrimSpace(string(text))); s == "" {
			return "", fmt.Errorf("read the %s of Prometheus: the file %s is empty", what, file)
		}
	}
	if strings.ContainsFunc(string(s), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("the %s of Prometheus has more than one line, or control characters", what)
	}
	return s, nil
}

// Check returns an error if a request to the server could not be made. The error has the
// names of flags; flag is that of the URL. It repeats no URL that may have a password: one
// with @, of which no part need be what the parser takes it for.
func (s Server) Check(flag string) error {
	u, err := url.Parse(s.URL)
	const form = "want http:// or https:// with a host, and no user, query or fragment"
	switch {
	case s.URL == "" && (s.CAFile != "" || s.TokenFile != "" || s.User != "" || s.PasswordFile != "" || len(s.Headers) > 0):
		return fmt.Errorf("flags that begin with --prometheus- have no effect without %s", flag)
	case s.URL == "":
		return nil
	case err != nil, strings.Contains(s.URL, "@"):
		return fmt.Errorf("%s: %s", flag, form)
	case u.RawQuery != "":
		return fmt.Errorf("%s, with the host %s: %s", flag, u.Host, form)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "":
		return fmt.Errorf("%s %q: %s", flag, s.URL, form)
	case u.Scheme == "http" && s.CAFile != "":
		return fmt.Errorf("--prometheus-ca-file has no effect without https:// in %s", flag)
	case (s.User == "") != (s.PasswordFile == "" && s.Password == ""):
		return errors.New("a user of Prometheus needs a password, and a password needs a user")
	case s.User != "" && (s.TokenFile != "" || s.Token != ""):
		return errors.New("want a token or a user of Prometheus, not both")
	}
	for name, value := range s.Headers {
		if !isHeaderName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("--prometheus-header %q: want a name of letters, digits and -, and a value of printable ASCII", name)
		}
	}
	return nil
}

// Sender returns a hash of who asks: the user and the headers, such as the ID of a tenant,
// which decide what the server answers. It has no part of a password, of a token or of a
// header that authorizes. It is empty if there is neither.
func (s Server) Sender() string {
	headers := map[string]string{}
	for name, value := range s.Headers {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Authorization", "Proxy-Authorization", "Cookie":
		default:
			headers[name] = value
		}
	}
	if s.User == "" && len(headers) == 0 {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", s.User, headers))) // in the order of the names
}

func isHeaderName(s string) bool {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}
	return s != "" && !strings.ContainsFunc(s, odd)
}

// maxDial is the time for a connection, and then for TLS on it.
const maxDial = 10 * time.Second

// A Client asks a server.
type Client struct {
	url     string
	headers http.Header
	http    *http.Client
	secrets []Secret // which the words of a server may repeat, the longest one first
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
	token, err := secret(s.Token, s.TokenFile, "token")
	if err != nil {
		return nil, err
	}
	password, err := secret(s.Password, s.PasswordFile, "password")
	if err != nil {
		return nil, err
	}
	switch {
	case token != "":
		c.authorize("Bearer", string(token))
	case s.User != "":
		c.authorize("Basic", base64.StdEncoding.EncodeToString([]byte(s.User+":"+string(password))))
		c.secrets = append(c.secrets, password)
	}
	// A secret may have another one in it.
	slices.SortStableFunc(c.secrets, func(a, b Secret) int { return len(b) - len(a) })
	t := &http.Transport{DialContext: (&net.Dialer{Timeout: maxDial}).DialContext, TLSHandshakeTimeout: maxDial, MaxConnsPerHost: AtOnce, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if s.Proxy {
		t.Proxy = http.ProxyFromEnvironment
	}
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

// authorize sets the header of the authorization, which is a secret, with and without its
// scheme.
func (c *Client) authorize(scheme, text string) {
	c.headers.Set("Authorization", scheme+" "+text)
	c.secrets = append(c.secrets, Secret(scheme+" "+text), Secret(text))
}

// Close closes the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// AtOnce is the number of queries that a client sends at the same time.
const AtOnce = 4

// Query evaluates an expression of PromQL now, and returns the answer in JSON, which the
// caller closes. It takes no longer than fetch.Patience, reading included. fetch.TroubleOf
// has the reason of each error.
func (c *Client) Query(ctx context.Context, text string) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, fetch.Patience)
	parameters := url.Values{"query": {text}, "timeout": {fetch.Patience.String()}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"?"+parameters.Encode(), http.NoBody)
	if err != nil {
		cancel()
		return nil, err
	}
	request.Header = c.headers.Clone()
	body, err := fetch.Get(c.http, request, "application/json")
	if err != nil {
		cancel()
		return nil, err
	}
	return closer{body, cancel}, nil
}

// A closer ends the time for an answer when it is closed.
type closer struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c closer) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}
