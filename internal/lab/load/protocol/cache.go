package protocol

import (
	"net/url"
	"strconv"
	"strings"
)

// A cache has cacheKeys keys with values of cacheValue bytes. Of cacheSet
// requests, one is a set and the others are gets.
const (
	cacheKeys  = 1000
	cacheValue = 512
	cacheSet   = 10
)

// cacheRequests returns the requests to a cache: one set and nine gets for each
// key. Before the run, all keys are set.
func cacheRequests(ready []byte, get, set func(key string) []byte) Requests {
	r := Requests{Ready: ready}
	for i := range cacheKeys {
		key := "tenon-lab-" + strconv.Itoa(i)
		get, set := get(key), set(key)
		r.Fill = append(r.Fill, set)
		r.Load = append(r.Load, set)
		for range cacheSet - 1 {
			r.Load = append(r.Load, get)
		}
	}
	return r
}

// isBare reports whether a URL is only a host and a port.
func isBare(u *url.URL) bool {
	return u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
}
