package manager

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// A program is the compiled tenon-manager and the kubeconfig of the API server
// that it uses.
type program struct{ bin, kubeconfig, log string }

// build compiles tenon-manager, for use with the API server of the scene.
func (s *scene) build() program {
	s.t.Helper()
	user, err := control.env.AddUser(envtest.User{Name: s.name, Groups: []string{"system:masters"}}, nil)
	s.must(err)
	text, err := user.KubeConfig()
	s.must(err)
	return build(s.t, text)
}

// build compiles tenon-manager, for use with the API server in the kubeconfig.
func build(t testing.TB, kubeconfig []byte) program {
	t.Helper()
	dir := t.TempDir()
	p := program{filepath.Join(dir, "tenon-manager"), filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "log")}
	build := exec.Command("go", "build", "-trimpath", "-o", p.bin, "tenon.sh/tenon/cmd/tenon-manager")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.WriteFile(p.kubeconfig, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// A process is a running program.
type process struct {
	command *exec.Cmd
	metrics string
}

// run starts the program, and ends it at the end of the test. The program has
// no webhooks and no lease unless the arguments in more enable them.
func (p program) run(t testing.TB, config client.ObjectKey, more ...string) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"--kubeconfig", p.kubeconfig, "--namespace", config.Namespace, "--config-map", config.Namespace + "/" + config.Name,
		"--leader-elect=false", "--webhook-port", "0", "--metrics", address, "--health", ""}, more...)
	run := &process{exec.Command(p.bin, args...), "http://" + address + "/metrics"}
	run.command.Stderr = log
	if err := run.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		run.kill()
		if text, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("%s", text[max(0, len(text)-5000):])
		}
	})
	for start := time.Now(); time.Since(start) < soon; time.Sleep(20 * time.Millisecond) {
		if r, err := http.Get(run.metrics); err == nil {
			r.Body.Close()
			return run
		}
	}
	t.Fatalf("the program does not answer at %s", run.metrics)
	return nil
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	p.command.Process.Kill()
	p.command.Wait()
}

// resourceUse returns the memory that the process uses, as text, and its CPU
// time.
func (p *process) resourceUse(t testing.TB) (string, time.Duration) {
	t.Helper()
	pid := p.command.Process.Pid
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var memory []string
	for line := range strings.Lines(string(status)) {
		for _, key := range []string{"VmHWM:", "VmRSS:", "RssAnon:"} {
			if rest, is := strings.CutPrefix(line, key); is {
				kib, _ := strconv.Atoi(strings.Fields(rest)[0])
				memory = append(memory, fmt.Sprintf("%s %d MiB", key[:len(key)-1], kib>>10))
			}
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return strings.Join(memory, ", "), time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// scrape returns the lines of a metric from the process.
func (p *process) scrape(t testing.TB, name string) string {
	t.Helper()
	r, err := http.Get(p.metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var found []string
	for lines := bufio.NewScanner(io.LimitReader(r.Body, 1<<22)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), name) {
			found = append(found, lines.Text())
		}
	}
	return strings.Join(found, " ")
}

// TestAManagerThatIsKilledAgainAndAgainLeavesWholeNodes kills the program with
// SIGKILL several times while reports arrive. After each kill, no node may have
// only half of a write.
func TestAManagerThatIsKilledAgainAndAgainLeavesWholeNodes(t *testing.T) {
	s := newScene(t)
	p := s.build()
	const nodes = 20
	name := func(i int) string { return fmt.Sprintf("killed-%d", i) }
	for i := range nodes {
		s.node(name(i))
	}
	rnd := rand.New(rand.NewPCG(61, 62))
	uses := int64(0)
	for range 4 {
		run := p.run(t, s.config)
		killed := make(chan struct{})
		delay := time.Duration(rnd.Int64N(int64(time.Second)))
		go func() {
			time.Sleep(delay)
			run.kill()
			close(killed)
		}()
		for range 3 {
			uses += 700 // a large fall each time
			for i := range nodes {
				s.report(name(i), batchOf(uses, 4))
				s.batchResources(name(i)) // fails if the node has half a write
			}
		}
		<-killed
		for i := range nodes {
			s.batchResources(name(i))
		}
	}
	p.run(t, s.config)
	for i := range nodes {
		s.becomes(name(i), fmt.Sprintf("%dm %s", 9200-uses, mem4), soon)
		s.waitUntil("the report says so", soon, func() bool {
			p := s.publishedPart(name(i))
			return p.CPU != nil && p.CPU.MilliValue() == 9200-uses
		})
	}
}

// TestTheNextLeaderCompletesWhatAKilledOneBegan runs two replicas, and kills
// the leader with SIGKILL while it writes. No node may have only half of a
// write at any time. After the lease has expired, the other replica must
// publish all reports.
func TestTheNextLeaderCompletesWhatAKilledOneBegan(t *testing.T) {
	s := newScene(t)
	p := s.build()
	const nodes = 20
	name := func(i int) string { return fmt.Sprintf("led-%d", i) }
	for i := range nodes {
		s.node(name(i))
	}
	leader := p.run(t, s.config, "--leader-elect=true")
	for i := range nodes {
		s.report(name(i), batchOf(0, 4))
	}
	for i := range nodes {
		s.becomes(name(i), "9200m "+mem4, soon)
	}
	other := p.run(t, s.config, "--leader-elect=true")
	killed := make(chan struct{})
	uses := int64(0)
	for round := range 4 {
		uses += 700 // a large fall each time, which the manager writes at once
		for i := range nodes {
			if round == 1 && i == nodes/2 {
				go func() {
					leader.kill()
					close(killed)
				}()
			}
			s.report(name(i), batchOf(uses, 4))
			s.batchResources(name(i)) // fails if the node has half a write
		}
	}
	<-killed
	behind := 0
	for i := range nodes {
		if s.batchResources(name(i)) != fmt.Sprintf("%dm %s", 9200-uses, mem4) {
			behind++
		}
	}
	if behind == 0 {
		t.Error("the killed leader has left no work")
	}
	begun := time.Now()
	for i := range nodes {
		s.becomes(name(i), fmt.Sprintf("%dm %s", 9200-uses, mem4), 2*time.Minute)
	}
	t.Logf("%d of %d nodes were behind; the next leader had written all after %.1f s, %s", behind, nodes, time.Since(begun).Seconds(), other.scrape(t, "tenon_manager_node_writes_total"))
}

// TestAManagerWaitsForItsAPIServer starts the program while nothing answers at
// the address of the API server, as in an outage. The program must not end,
// because the kubelet would wait longer before each restart.
func TestAManagerWaitsForItsAPIServer(t *testing.T) {
	s := newScene(t)
	const name = "waited-for"
	s.node(name)
	s.report(name, batchOf(0, 4))
	p := s.build()
	text, err := os.ReadFile(p.kubeconfig)
	s.must(err)
	server := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	there := string(server.Find(text))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	t.Cleanup(func() { l.Close() })
	s.must(os.WriteFile(p.kubeconfig, server.ReplaceAll(text, []byte(l.Addr().String())), 0o600))
	var up atomic.Bool
	go forward(l, there, &up)

	health, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	health.Close()
	ready := func() string {
		r, err := http.Get("http://" + health.Addr().String() + "/readyz?verbose")
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return fmt.Sprint(r.StatusCode, " ", string(text))
	}
	run := p.run(t, s.config, "--health", health.Addr().String())
	time.Sleep(3 * time.Second)
	run.scrape(t, "tenon_manager") // fails if the program has ended
	s.batchResources(name)
	if is := ready(); !strings.HasPrefix(is, "500") {
		t.Errorf("without an API server: ready: %s", is)
	}
	up.Store(true)
	s.becomes(name, "9200m "+mem4, 2*soon)
	s.waitUntil("it is ready", soon, func() bool { return strings.HasPrefix(ready(), "200") })
}

// forward passes connections on to an address until the listener is closed.
// While up is false, it closes new connections at once.
func forward(l net.Listener, address string, up *atomic.Bool) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		if !up.Load() {
			from.Close()
			continue
		}
		to, err := net.Dial("tcp", address)
		if err != nil {
			from.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1]) // the end of one direction ends both
				from.Close()
				to.Close()
			}()
		}
	}
}
