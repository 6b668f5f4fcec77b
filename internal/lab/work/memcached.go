package work

import (
	"context"
	"strconv"

	"tenon.sh/tenon/internal/lab/testbed"
)

// MemcachedProgram is the server.
var MemcachedProgram = Program{Name: "memcached", Packages: "apt install memcached | dnf install memcached | apk add memcached", Version: []string{"-V"}}

// memcachedKind is a memcached with a thread for each CPU.
var memcachedKind = Kind{Name: "memcached", Scheme: "memcached", Program: MemcachedProgram, Prepare: func(_ context.Context, _ *testbed.Site, at place) (Service, error) {
	return Service{
		Child: testbed.Child{Argv: []string{at.path, "-u", "daemon", "-l", at.host, "-p", strconv.Itoa(at.port), "-U", "0", "-t", strconv.Itoa(at.threads), "-c", "4096"}},
		URL:   "memcached://" + at.address(),
	}, nil
}}
