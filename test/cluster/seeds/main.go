// Command seeds is the program in two images of a published page on
// topology-aware CPU scheduling. Called as java-pi, it computes digits of π with
// many threads and prints the same as the published program. Called as go-demo,
// it answers HTTP requests, and computes if a request says for how long.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/lab/pi"
)

func main() {
	if err := run(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	switch {
	case name == "java-pi":
		return compute(os.Stdout)
	case name == "go-demo" && len(args) == 1:
		return get(os.Stdout, args[0])
	case name == "go-demo":
		return serve(os.Stdout)
	}
	return fmt.Errorf("started as %q: want java-pi or go-demo", name)
}

// serve prints on which CPUs and NUMA nodes it may run, and then answers all
// requests with a page. With the query busy=30s it first computes for that time.
func serve(out io.Writer) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if strings.Contains(line, "_allowed_list:") {
			fmt.Fprint(out, line)
		}
	}
	page := strings.Repeat("x", 1024) // the tag of the image is 1k
	server := http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy := r.URL.Query().Get("busy"); busy != "" {
			d, err := time.ParseDuration(busy)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			for end := time.Now().Add(d); time.Now().Before(end) && r.Context().Err() == nil; {
				pi.Task{Digits: 1000, Threads: 4, Rounds: 100}.Compute()
			}
		}
		_, _ = io.WriteString(w, page)
	})}
	return server.ListenAndServe()
}

// compute reads the published variables limit and threadNum. After the
// published lines it prints the number of threads, the CPUs on which it may
// run, and how many digits an independent formula confirms. (The ninth digit of
// the published program is wrong.)
func compute(out io.Writer) error {
	job := pi.Task{Rounds: 1}
	for name, to := range map[string]*int{"limit": &job.Digits, "threadNum": &job.Threads} {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return fmt.Errorf("variable %s is %q: want a whole number", name, os.Getenv(name))
		}
		*to = n
	}
	if err := job.Check(); err != nil {
		return err
	}
	cpus, err := task.Affinity(0)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "computing Pi with %d Threads...", job.Threads)
	var self proc.PIDStat
	var unread error
	job.Ready = func() { self, unread = proc.Default().PIDStat(os.Getpid()) }
	begun := time.Now()
	digits := job.Compute()
	fmt.Fprintf(out, "computed the first %d digets of pi in %d ms!\nthe first digets are: %.10s\nwriting to pi.txt...\n", job.Digits, time.Since(begun).Milliseconds(), digits)
	if unread != nil {
		return unread
	}
	if err := os.WriteFile("pi.txt", []byte(digits+"\n"), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "finished!\n%d threads on CPUs %v, %d of %d digits right\n", self.NumThreads, cpus, pi.CorrectDigits(digits), job.Digits)
	return nil
}

// get prints the status and the length of an HTTP answer, because the image has
// no other client.
func get(out io.Writer, url string) error {
	answer, err := http.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	fmt.Fprintln(out, answer.Status, n)
	return err
}
