package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clientPod is a pod on the bridge of the node. Its image has an HTTP client.
const clientPod = `{apiVersion: v1, kind: Pod, metadata: {name: client}, spec: {terminationGracePeriodSeconds: 1,
containers: [{name: client, image: "registry.cn-hangzhou.aliyuncs.com/haoshuwei24/go-demo:1k"}]}}`

// TestThePublishedServiceAnswers creates the published Service, ConfigMap and
// Deployments of nginx. The page must come through the NodePort and the cluster
// IP, from all replicas, to the node and to pods. After the Service is deleted,
// nothing of it may be left. The machine itself must never have a rule of
// kube-proxy.
func TestThePublishedServiceAnswers(t *testing.T) {
	inTurn(t)
	runParallel(t)
	needsCluster(t)
	before := rulesOfTheMachine(t)
	c, n := upWith(t, "service", NodeOptions{KubeProxy: true})
	serveThePublishedImages(t, c)
	must(t, c.Images().AddPublishedNGINX())
	theFaultsOfThePage(t, c, n)
	for _, name := range []string{"service", "configmap", "two-cpus/nginx"} {
		create(t, c, name)
	}
	requireSoon(t, time.Minute, "no node has the published label", func() error {
		said := kubectl(t, c, "get", "pods", "-l", "app=nginx", "-o", "jsonpath={.items[*].status.conditions[*].message}")
		if strings.Count(said, "1 node(s) didn't match Pod's node affinity/selector") != 2 {
			return fmt.Errorf("the pods say %q", said)
		}
		return nil
	})
	kubectl(t, c, "label", "node", n.Name, "policy=intel7")

	_, err := c.KubectlApply(t.Context(), clientPod, "create", "-f", "-")
	must(t, err)
	page := servicePage(t, c, n)
	page.answers()
	requireSoon(t, time.Minute, "the client runs", func() error { return phase(t, c, "client", "Running") })
	for _, url := range page.urls {
		requireSoon(t, 10*time.Second, "a pod gets the page from "+url, func() error {
			said, err := c.Kubectl(t.Context(), "exec", "client", "--", "/go-demo", url)
			if err == nil && strings.TrimSpace(said) != "200 OK 612" {
				err = fmt.Errorf("it gets %q", said)
			}
			return err
		})
	}

	if _, err := c.Kubectl(t.Context(), "delete", "deployment", "nginx"); err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("the published command to delete the deployment has the error %v", err)
	}
	page.endsWith("nginx")
	a := newAgent(t, c, n)
	a.start()
	create(t, c, "two-cpus/nginx-topology-aware")
	page.answers()
	page.oneHoldsACPU(a)
	if now := rulesOfTheMachine(t); now != before {
		t.Errorf("the machine has rules of kube-proxy:\n%s\nbefore:\n%s", now, before)
	}
	page.endsWith("nginx-topology-aware")

	for _, what := range []string{"service/nginx-service-nodeport", "configmap/nginx-configmap", "pod/client"} {
		kubectl(t, c, "delete", what)
	}
	nothingIsLeft(t, n)
	if now := rulesOfTheMachine(t); now != before {
		t.Errorf("the machine has rules of kube-proxy:\n%s\nbefore:\n%s", now, before)
	}
}

// theFaultsOfThePage types the published commands that no cluster accepts.
func theFaultsOfThePage(t *testing.T, c *Cluster, n *Node) {
	t.Helper()
	for _, fault := range []struct {
		want string
		args []string
	}{
		{"a valid label must", []string{"label", "node", n.Name, "policy=intel/amd"}},
		{"Unexpected args", []string{"create", "-f", "service.yaml", "configmap.yaml", "nginx.yaml"}},
	} {
		if _, err := c.Kubectl(t.Context(), fault.args...); err == nil || !strings.Contains(err.Error(), fault.want) {
			t.Errorf("kubectl %v has the error %v, want %q", fault.args, err, fault.want)
		}
	}
}

// A servedPage is the page of nginx at the addresses of the published Service.
type servedPage struct {
	t      *testing.T
	c      *Cluster
	client http.Client
	urls   []string // through the NodePort, and through the cluster IP
	pages  int      // number of times that the current replicas served it
}

func servicePage(t *testing.T, c *Cluster, n *Node) *servedPage {
	t.Helper()
	p := &servedPage{t: t, c: c}
	// Each request needs its own connection, because kube-proxy chooses an
	// endpoint for each connection.
	p.client = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: c.Dial, DisableKeepAlives: true}}
	p.urls = []string{
		"http://" + n.IP + ":32257/",
		"http://" + kubectl(t, c, "get", "service", "nginx-service-nodeport", "-o", "jsonpath={.spec.clusterIP}") + ":8000/",
	}
	return p
}

// answers waits until two new replicas are ready, and gets the page from each
// address. The access logs of the replicas must then have all requests, and the
// log of each replica some of them.
func (p *servedPage) answers() {
	p.t.Helper()
	p.pages = 0
	requireSoon(p.t, time.Minute, "both replicas are ready", func() error {
		if ready := kubectl(p.t, p.c, "get", "deployment", "nginx-deployment", "-o", "jsonpath={.status.readyReplicas}"); ready != "2" {
			said := kubectl(p.t, p.c, "get", "pods", "-l", "app=nginx", "-o", "jsonpath={.items[*].status.conditions[*].message} {.items[*].status.containerStatuses[*].state}")
			return fmt.Errorf("%q are ready: %s", ready, said)
		}
		return nil
	})
	// kube-proxy writes the rules for a replica a moment after it is ready.
	requireSoon(p.t, 20*time.Second, "both replicas answer", func() error {
		for _, url := range p.urls {
			if err := p.get(url); err != nil {
				return err
			}
		}
		for name, n := range p.counted() {
			if n == 0 {
				return fmt.Errorf("%s has no request", name)
			}
		}
		return nil
	})
	const each = 20
	for _, url := range p.urls {
		for range each {
			if err := p.get(url); err != nil {
				p.t.Error(err)
			}
		}
	}
	requireSoon(p.t, 10*time.Second, "the replicas have logged all requests", func() error {
		total, counted := 0, p.counted()
		for _, n := range counted {
			total += n
		}
		if len(counted) != 2 || total != p.pages {
			return fmt.Errorf("the log has %d of %d: %v", total, p.pages, counted)
		}
		p.t.Logf("requests of the replicas: %v", counted)
		return nil
	})
}

// get gets the page once.
func (p *servedPage) get(url string) error {
	answer, err := p.client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || len(body) != 612 || !strings.HasPrefix(string(body), "<!doctype html>")) {
		err = fmt.Errorf("%s: %s: %q", url, answer.Status, body)
	}
	if err == nil {
		p.pages++
	}
	return err
}

// counted returns how many requests for the page each replica has answered. It
// counts lines that have the published format.
func (p *servedPage) counted() map[string]int {
	p.t.Helper()
	counts := map[string]int{}
	for _, name := range p.replicas("{.metadata.name}") {
		counts[name] = strings.Count(kubectl(p.t, p.c, "logs", name), `] "GET / HTTP/1.1" 200 612 "-" "`)
	}
	return counts
}

// replicas returns a field of each pod of nginx.
func (p *servedPage) replicas(field string) []string {
	p.t.Helper()
	return strings.Fields(kubectl(p.t, p.c, "get", "pods", "-l", "app=nginx", "-o", `jsonpath={range .items[*]}`+field+`{"\n"}{end}`))
}

// oneHoldsACPU waits until the node reports that one replica owns a CPU. There
// may be no room for the other: one CPU of a node stays shared.
func (p *servedPage) oneHoldsACPU(a *agent) {
	p.t.Helper()
	requireSoon(p.t, 30*time.Second, "a replica has a CPU of its own", func() error {
		cpus := a.report().Status.CPUs
		if cpus == nil {
			return errors.New("the node reports no CPUs")
		}
		for _, uid := range p.replicas("{.metadata.uid}") {
			if h := cpus.Pod(uid); h != nil && h.CPUs != "" && !strings.ContainsAny(h.CPUs, ",-") {
				p.t.Logf("a replica holds CPU %s of %+v", h.CPUs, cpus.Pods)
				return nil
			}
		}
		return fmt.Errorf("the pods have %+v", cpus.Pods)
	})
}

// endsWith deletes the Deployment. Both addresses must then refuse connections.
func (p *servedPage) endsWith(manifest string) {
	p.t.Helper()
	kubectl(p.t, p.c, "delete", "-f", ownCPUs+manifest+".yaml", "--cascade=foreground")
	for _, url := range p.urls {
		requireSoon(p.t, 30*time.Second, url+" refuses connections", func() error {
			switch err := p.get(url); {
			case err == nil:
				return errors.New("it answers")
			case !strings.Contains(err.Error(), "refused"):
				return err
			}
			return nil
		})
	}
}

// nothingIsLeft waits until kube-proxy has no rule for the published Service,
// and the node no cgroup of a pod. It then stops kube-proxy, which must leave
// no table.
func nothingIsLeft(t *testing.T, n *Node) {
	t.Helper()
	nft := func(args ...string) string {
		out, err := n.Command(t.Context(), "nft", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("nft %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	requireSoon(t, 30*time.Second, "no rule of the Service is left", func() error {
		rules := nft("list", "table", "ip", proxyTable)
		if strings.Contains(rules, "32257") || strings.Contains(rules, "dnat to 10.88.0.") {
			return errors.New(rules)
		}
		return nil
	})
	requireSoon(t, 30*time.Second, "no cgroup of a pod is left", func() error {
		groups, err := groupsBelow(n.Cgroup("cpu", "kubepods"))
		for _, dir := range groups {
			if strings.HasPrefix(filepath.Base(dir), "pod") {
				err = errors.Join(err, fmt.Errorf("%s is left", dir))
			}
		}
		return err
	})
	must(t, n.StopKubeProxy(t.Context()))
	if tables := nft("list", "tables"); strings.Contains(tables, proxyTable) {
		t.Errorf("kube-proxy left %s", tables)
	}
}

// rulesOfTheMachine returns the rules of kube-proxy among the machine's own
// rules. There are some if the machine is a node of another cluster.
func rulesOfTheMachine(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "--stateless", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v: %s", err, out)
	}
	var found strings.Builder
	for line := range strings.Lines(string(out)) {
		for _, mark := range []string{proxyTable, "KUBE-", "32257"} {
			if strings.Contains(line, mark) {
				found.WriteString(line)
				break
			}
		}
	}
	return found.String()
}
