package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

// threads is the number of threads of the published call of wrk, on 14 CPUs.
const threads = 20

// A replica is a pod of the Deployment.
type replica struct{ name, uid string }

// runServers waits until both servers answer, and sends the closed-loop load
// through the Service.
func (b *pods) runServers(ctx context.Context, m pinning.Mode, selector string, r *pinning.Run) error {
	why, err := b.space.Gather(ctx, "deployments", selector, replicas, b.Status.Now)
	if err != nil {
		return err
	}
	if why != "" {
		r.Void = append(r.Void, why)
		return nil
	}
	servers, err := b.replicas(ctx, selector)
	if err != nil {
		return err
	}
	var uids []string
	for _, s := range servers {
		uids = append(uids, s.uid)
	}
	var had holding
	if b.cpus.why == "" {
		if had, err = b.awaitHeld(ctx, m, b.serverLimit, uids); err != nil {
			return err
		}
		if had.why != "" {
			r.Void = append(r.Void, had.why)
			return nil
		}
	}
	if err := b.awaitBoth(ctx, servers); err != nil {
		return err
	}
	before, err := b.counters(ctx, servers)
	if err != nil {
		return err
	}
	begun := time.Now()
	w, err := b.closedLoop(ctx, wrk.Config{URL: b.url(), Threads: threads, Connections: connections, Duration: b.Duration}, b.Place.Client)
	if err != nil {
		return err
	}
	closed := pinning.ClosedLoopOf(w)
	r.Closed, r.Void = &closed, append(r.Void, w.Void...)
	r.Seconds = time.Since(begun).Seconds()
	after, err := b.counters(ctx, servers)
	if err != nil {
		return err
	}
	if b.cpus.why == "" {
		has, err := b.held(ctx, m, b.serverLimit, uids)
		if err != nil {
			return err
		}
		if has.why != "" {
			r.Void = append(r.Void, has.why)
		} else if m != pinning.StaticBurst && has.all != had.all {
			r.Void = append(r.Void, fmt.Sprintf("the CPUs of the servers changed from %v to %v during the run", had.all, has.all))
		}
		r.CPUs = has.all
	}
	b.count(m, before, after, r)
	return nil
}

// count adds the counters of the servers to a run. The run is void if a server
// was started again, if one server had nearly all of the load, or if the quota
// is not that of the mode.
func (b *pods) count(m pinning.Mode, before, after []podCounters, r *pinning.Run) {
	if len(before) != replicas || len(after) != replicas {
		return // their image has no shell
	}
	var each []float64
	for i := range before {
		was := r.CPU
		before[i].addTo(r, after[i])
		each = append(each, r.CPU-was)
		if !givesCPUs(m) {
			r.CPUs = r.CPUs.Union(before[i].allowed)
		}
	}
	const fair = 3
	switch least, most := slices.Min(each), slices.Max(each); {
	case least < 0:
		r.Void = append(r.Void, "a server was started again during the run")
	case most > fair*least:
		r.Void = append(r.Void, fmt.Sprintf("one server used %.2f s of CPU time and the other %.2f s: the Service did not lead to both", most, least))
	}
	switch free := m == pinning.SharedFree || m == pinning.Pinned; {
	case free && r.Periods > 0:
		r.Void = append(r.Void, "the servers have a quota, although the mode has no CPU limit: is there a LimitRange?")
	case !free && r.Periods == 0:
		r.Void = append(r.Void, "the servers have no quota: is cpuCFSQuota off in the kubelet?")
	}
}

// replicas returns the pods of the Deployment, ordered by their names.
func (b *pods) replicas(ctx context.Context, selector string) ([]replica, error) {
	var pods struct {
		Items []struct{ Metadata struct{ Name, UID string } }
	}
	if err := b.space.Get(ctx, &pods, "pods", "-l", selector); err != nil {
		return nil, err
	}
	var all []replica
	for _, p := range pods.Items {
		all = append(all, replica{p.Metadata.Name, p.Metadata.UID})
	}
	if len(all) != replicas {
		return nil, fmt.Errorf("the Deployment has %d pods, not %d", len(all), replicas)
	}
	slices.SortFunc(all, func(x, y replica) int { return strings.Compare(x.name, y.name) })
	return all, nil
}

func (b *pods) url() string {
	return "http://" + net.JoinHostPort(b.node.Address, strconv.Itoa(b.Pods.NodePort)) + "/"
}

// answerPatience is the longest time from the start of the servers until the
// NodePort leads to both of them.
const answerPatience = 30 * time.Second

// awaitBoth waits until both servers are endpoints of the Service, and new
// connections lead to both. kube-proxy may learn of the second endpoint up to a
// second after the first. If wrk opened its connections in that second, they
// would all stay at the first server.
func (b *pods) awaitBoth(ctx context.Context, servers []replica) error {
	if err := b.awaitEndpoints(ctx); err != nil {
		return err
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(b.patience); ; {
		err := b.checkBoth(ctx, &client, servers)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the servers run, but the Service does not lead to them (%w): does kube-proxy run, and can this machine reach node %s?", err, b.node.Name)
		}
		if err := testbed.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// checkBoth returns an error if one of forty new connections gets no page, or
// if one server accepts fewer than four of them. If kube-proxy knows both
// servers and chooses at random, fewer than one check in a million fails.
func (b *pods) checkBoth(ctx context.Context, client *http.Client, servers []replica) error {
	const tries, fewest = 40, 4
	before, err := b.counters(ctx, servers)
	if err != nil {
		return err
	}
	for range tries {
		if err := get(ctx, client, b.url()); err != nil {
			return err
		}
	}
	after, err := b.counters(ctx, servers)
	if err != nil {
		return err
	}
	for i := range min(len(before), len(after)) {
		if n := after[i].accepted - before[i].accepted; n < fewest {
			return fmt.Errorf("pod %s accepted %d of %d connections", servers[i].name, n, tries)
		}
	}
	return nil
}

// awaitEndpoints waits until the Service has an endpoint for each server.
func (b *pods) awaitEndpoints(ctx context.Context) error {
	for deadline := time.Now().Add(b.patience); ; {
		var list struct {
			Items []struct {
				Endpoints []struct{ Conditions struct{ Ready *bool } }
			}
		}
		if err := b.space.Get(ctx, &list, "endpointslices", "-l", "kubernetes.io/service-name="+serviceName); err != nil {
			return err
		}
		ready := 0
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready { // unknown counts as ready (API of EndpointSlice)
					ready++
				}
			}
		}
		if ready == replicas {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the Service has %d endpoints after %v, not %d", ready, b.patience, replicas)
		}
		if err := testbed.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(url + ": " + answer.Status)
	}
	return nil
}

// podCounters are counters that a server's container reads about itself.
type podCounters struct {
	group    jobs.GroupCounters
	waiting  time.Duration // run-queue delay of all threads, from schedstat
	allowed  unit.CPUSet
	accepted int64 // number of TCP connections that the pod's network namespace accepted: PassiveOpens
}

// counterScript prints the counters of the container's cgroup, the schedstat of
// all threads, the CPUs that the container may use, and the TCP counters of the
// pod.
const counterScript = jobs.MarkScript + `mark start 2>&1
cat /proc/[0-9]*/task/*/schedstat 2>/dev/null
grep Cpus_allowed_list /proc/self/status
grep Tcp: /proc/net/snmp`

// counters reads the counters of all servers. If their image has no shell, it
// returns nothing.
func (b *pods) counters(ctx context.Context, servers []replica) ([]podCounters, error) {
	if b.blind {
		return nil, nil
	}
	all := make([]podCounters, len(servers))
	for i, s := range servers {
		out, err := b.space.Do(ctx, "", "exec", s.name, "-c", "nginx", "--", "sh", "-c", counterScript)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil:
			all[i], err = parseCounters(string(out))
		}
		if err != nil {
			b.blind = true
			b.Status.Keep("kubectl exec cannot read the counters of pod %s: has its image sh, cat and grep? CPU time and waits of the servers are unknown", s.name)
			return nil, nil
		}
	}
	return all, nil
}

// passiveOpens is the place of PassiveOpens in the line "Tcp:" of /proc/net/snmp.
const passiveOpens = 6

func parseCounters(text string) (c podCounters, err error) {
	found := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if group, ok := jobs.ParseCounters(line); ok {
			c.group, found = group, true
			continue
		}
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			if c.allowed, err = unit.ParseCPUSet(strings.TrimSpace(list)); err != nil {
				return c, err
			}
			continue
		}
		if fields := strings.Fields(line); len(fields) > passiveOpens && fields[0] == "Tcp:" && fields[1] != "RtoAlgorithm" {
			if c.accepted, err = strconv.ParseInt(fields[passiveOpens], 10, 64); err != nil {
				return c, err
			}
			continue
		}
		var run, wait, slices int64
		if _, err := fmt.Sscan(line, &run, &wait, &slices); err == nil {
			c.waiting += time.Duration(wait)
		}
	}
	if !found {
		return c, fmt.Errorf("no counters in %.300q", text)
	}
	return c, nil
}

// addTo adds the differences between two readings to a run.
func (c podCounters) addTo(r *pinning.Run, after podCounters) {
	r.CPU += (after.group.Usage.Or(0) - c.group.Usage.Or(0)).Seconds()
	r.Periods += after.group.Periods.Or(0) - c.group.Periods.Or(0)
	r.Throttled += after.group.Throttled.Or(0) - c.group.Throttled.Or(0)
	r.Waiting += (after.waiting - c.waiting).Seconds()
}
