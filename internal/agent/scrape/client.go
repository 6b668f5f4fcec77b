package scrape

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"tenon.sh/tenon/internal/cluster/fetch"
	"tenon.sh/tenon/internal/model/node"
)

// A client reads one service.
type client struct {
	target Target
	url    string
	http   *http.Client
}

func newClient(t Target) *client {
	address := net.JoinHostPort(t.Address, strconv.Itoa(t.Want.Port))
	return &client{target: t, url: "http://" + address + t.Want.Path, http: fetch.NewClient(&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
		MaxIdleConns: 1, IdleConnTimeout: 4 * every,
	})}
}

func (c *client) leave() { c.http.CloseIdleConnections() }

// read reads the histogram of the service once.
func (c *client) read(ctx context.Context) node.Requests {
	ctx, cancel := context.WithTimeout(ctx, fetch.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, http.NoBody)
	if err != nil {
		return node.Requests{Trouble: node.TroubleConnect}
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	answer, err := fetch.Get(c.http, request, "text/plain")
	if err != nil {
		return node.Requests{Trouble: fetch.TroubleOf(err)}
	}
	defer answer.Close()
	got, err := parse(answer, c.target.Want.Series)
	if err != nil {
		return node.Requests{Trouble: fetch.TroubleOf(err)}
	}
	return got
}
