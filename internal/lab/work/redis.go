package work

import (
	"context"
	"strconv"

	"tenon.sh/tenon/internal/lab/testbed"
)

// RedisProgram is the server.
var RedisProgram = Program{Name: "redis-server", Packages: "apt install redis-server | dnf install redis | apk add redis", Version: []string{"--version"}}

// redisKind is a Redis that keeps nothing on disk.
var redisKind = Kind{Name: "redis", Scheme: "redis", Program: RedisProgram, Prepare: func(_ context.Context, _ *testbed.Site, at place) (Service, error) {
	return Service{
		Child: testbed.Child{Argv: []string{at.path, "--bind", at.host, "--port", strconv.Itoa(at.port), "--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"}},
		URL:   "redis://" + at.address(),
	}, nil
}}
