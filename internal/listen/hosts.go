package listen

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// names are the names by which clients on loopback may address this machine, in
// lower case.
type names []string

// namesOf returns the names of this machine: localhost, the host name, the host
// name without its domain, and one that the configuration adds.
func namesOf(more string) names {
	all := names{"localhost"}
	if host, err := os.Hostname(); err == nil { // without a name, clients use localhost or an address
		host = strings.ToLower(host)
		short, _, _ := strings.Cut(host, ".")
		all = append(all, host, short)
	}
	if more != "" {
		all = append(all, strings.ToLower(more))
	}
	return all
}

// check returns an error if a request came over loopback with a name of another
// machine in its header Host. A web page can make the browser of a user on this
// machine send such a request: its own name then resolves to 127.0.0.1 (DNS
// rebinding), and the page may read the answer. A request from another machine may
// have any name: a Service, a proxy or a load balancer has names that this machine
// does not know, and such a page needs no browser on this machine.
func (n names) check(r *http.Request) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	at, is := local.(*net.TCPAddr)
	if !is || !at.IP.IsLoopback() || r.Host == "" {
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || strings.HasSuffix(host, ".localhost") {
		return nil
	}
	for _, name := range n {
		if host == name {
			return nil
		}
	}
	return fmt.Errorf("the header Host names %q: over loopback, want an address or one of %s", r.Host, strings.Join(n, ", "))
}
