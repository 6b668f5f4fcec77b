// Command timed is a service that measures itself. Two of its threads answer a request
// each 10 ms, and it shows how long the requests took as a Prometheus histogram. A
// request begins when it is due, so a thread that waits for a CPU answers late.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	every = 10 * time.Millisecond
	// One request is so many additions, which take a CPU some 0.2 ms.
	additions = 500_000
)

func main() {
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
	server := http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
