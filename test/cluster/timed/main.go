// Command timed is a service that measures itself. Two of its threads answer a request
// each 10 ms, and it shows how long the requests took as a Prometheus histogram. A
// request begins when it is due, so a thread that waits for a CPU answers late.
//
// As timed answer, it is a service that knows nothing of its latency: it answers each
// request over HTTP after 20 ms of CPU time. As timed ask URL, it is a client of such a
// service.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
)

const (
	every = 10 * time.Millisecond
	// One request is so many additions, which take a CPU some 0.2 ms.
	additions = 500_000
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "answer":
		http.HandleFunc("/", answer)
		listen()
	case len(os.Args) == 3 && os.Args[1] == "ask":
		go ask(os.Args[2])
		ask(os.Args[2])
	}
	took := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "timed_seconds", Help: "Time to answer a request.", Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1},
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(took)
	for range 2 {
		go func() {
			sum := uint64(0)
			for due := time.Now(); ; due = due.Add(every) {
				time.Sleep(time.Until(due))
				for i := range uint64(additions) {
					sum += i ^ sum<<1
				}
				took.Observe(time.Since(due).Seconds() + float64(sum&1)*1e-12) // so that the additions are not left out
			}
		}()
	}
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	listen()
}

// listen serves HTTP until the end of the process.
func listen() {
	server := http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// answer uses 20 ms of CPU time.
func answer(w http.ResponseWriter, _ *http.Request) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := threadTime() + 20*time.Millisecond; threadTime() < end; {
	}
	fmt.Fprint(w, "done")
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// ask sends requests on a connection, each 30 ms after the last answer.
func ask(url string) {
	for ; ; time.Sleep(30 * time.Millisecond) {
		if answer, err := http.Get(url); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body) // so that the connection stays
			_ = answer.Body.Close()
		}
	}
}
