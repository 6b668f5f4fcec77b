package kubectl

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"tenon.sh/tenon/internal/lab/testbed"
)

// leaseName is the name of the Lease that a lab holds in its namespace.
const leaseName = "tenon-lab"

// leaseTimes are the times of a Lease. kubectl needs CPU time for each renewal,
// perhaps on the node that the lab measures.
type leaseTimes struct {
	lasts  time.Duration // after this time without a renewal, another lab may take the Lease
	renew  time.Duration // time between two renewals
	look   time.Duration // time between two reads of a Lease that another lab has
	answer time.Duration // longest time of a renewal
}

var usualTimes = leaseTimes{lasts: time.Minute, renew: 20 * time.Second, look: time.Second, answer: 10 * time.Second}

// ErrLeaseLost means that another lab may run in the namespace of this lab now.
// Then this lab must not remove objects there.
var ErrLeaseLost = errors.New("the Lease of this lab is lost")

// A Lease tells all labs, also those on other machines, that a lab runs in a
// namespace. The lab renews its Lease. If the lab was killed, the Lease expires.
type Lease struct {
	client    Client
	namespace string
	holder    string
	times     leaseTimes
	end       context.CancelFunc
	ended     chan struct{}

	mu      sync.Mutex
	renewed time.Time // wall clock, which goes on while the machine sleeps
	lost    error
}

// A leaseObject has the fields of a Lease that the lab reads.
type leaseObject struct {
	Metadata struct{ ResourceVersion string }
	Spec     struct {
		HolderIdentity, RenewTime string
		LeaseDurationSeconds      int
	}
}

// Hold takes the Lease of a namespace and renews it until Release. If another lab
// has the Lease, Hold watches the Lease for as long as it lasts. If the other lab
// renews it meanwhile, Hold returns an error. So Hold compares no clocks of
// different machines. It calls tell with the reason for which it waits.
func (k Client) Hold(ctx context.Context, namespace string, tell func(format string, args ...any)) (*Lease, error) {
	return k.hold(ctx, namespace, usualTimes, tell)
}

func (k Client) hold(ctx context.Context, namespace string, times leaseTimes, tell func(string, ...any)) (*Lease, error) {
	host, _ := os.Hostname() //nolint:errcheck // empty: the process ID and the random text remain
	l := &Lease{
		client: k, namespace: namespace, times: times, ended: make(chan struct{}),
		holder: fmt.Sprintf("%s, process %d, %s", cmp.Or(host, "?"), os.Getpid(), rand.Text()[:8]),
	}
	for taken := false; !taken; {
		l.renewed = time.Now().Round(0)
		_, err := k.Do(ctx, Manifest([]Object{l.object(l.renewed, "")}), "create", "-f", "-")
		if errors.Is(err, AlreadyExists) {
			taken, err = l.takeOver(ctx, tell)
		} else {
			taken = err == nil
		}
		if err != nil {
			return nil, err
		}
	}
	renewing, end := context.WithCancel(context.WithoutCancel(ctx))
	l.end = end
	go l.keep(renewing)
	return l, nil
}

// object returns the Lease. If version is not empty, the API server accepts the
// object only if it replaces this version.
func (l *Lease) object(at time.Time, version string) Object {
	metadata := Object{"name": leaseName}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	return Object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
		"spec": Object{
			"holderIdentity": l.holder, "leaseDurationSeconds": int(l.times.lasts.Seconds()),
			"acquireTime": microTime(at), "renewTime": microTime(at),
		},
	}
}

func microTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

func (l *Lease) read(ctx context.Context) (o leaseObject, exists bool, err error) {
	err = l.client.Get(ctx, &o, "lease", leaseName)
	if errors.Is(err, NotFound) {
		return o, false, nil
	}
	return o, err == nil, err
}

// takeOver takes a Lease that another lab has not renewed for as long as the Lease
// lasts. If the Lease disappears meanwhile, takeOver returns false.
func (l *Lease) takeOver(ctx context.Context, tell func(string, ...any)) (taken bool, err error) {
	was, exists, err := l.read(ctx)
	if err != nil || !exists {
		return false, err
	}
	lasts := time.Duration(was.Spec.LeaseDurationSeconds) * time.Second
	tell("a lab (%s) was in namespace %s: waiting up to %v to see whether it still runs", was.Spec.HolderIdentity, l.namespace, lasts)
	for expires := time.Now().Add(lasts); time.Now().Before(expires); {
		if err := testbed.Pause(ctx, l.times.look); err != nil {
			return false, err
		}
		now, exists, err := l.read(ctx)
		if err != nil || !exists {
			return false, err
		}
		if now.Metadata != was.Metadata || now.Spec != was.Spec {
			return false, l.refusal(now.Spec.HolderIdentity)
		}
	}
	l.renewed = time.Now().Round(0)
	_, err = l.client.Do(ctx, Manifest([]Object{l.object(l.renewed, was.Metadata.ResourceVersion)}), "replace", "-f", "-")
	if errors.Is(err, Conflict) {
		return false, l.refusal(was.Spec.HolderIdentity)
	}
	return err == nil, err
}

func (l *Lease) refusal(holder string) error {
	return fmt.Errorf("another lab (%s) runs in namespace %s and renews the Lease %s there: wait until it has ended, or name another namespace with --namespace",
		holder, l.namespace, leaseName)
}

// keep renews the Lease until ctx ends or the Lease is lost.
func (l *Lease) keep(ctx context.Context) {
	defer close(l.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(l.times.renew):
		}
		_ = l.Renew(ctx) // Held returns the error, if it lasts
	}
}

// Renew renews the Lease. It returns an error if another lab has it now.
func (l *Lease) Renew(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, l.times.answer)
	defer stop()
	at := time.Now().Round(0)
	patch, err := json.Marshal([]Object{
		{"op": "test", "path": "/spec/holderIdentity", "value": l.holder},
		{"op": "replace", "path": "/spec/renewTime", "value": microTime(at)},
	})
	if err != nil {
		panic(err) // strings only
	}
	_, err = l.client.Do(ctx, "", "patch", "lease", leaseName, "--type=json", "-p", string(patch))
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.renewed = at
		return l.lost
	}
	now, exists, readErr := l.read(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case readErr != nil: // the API server does not answer now
	case !exists:
		l.lost = fmt.Errorf("%w: Lease %s in namespace %s was deleted", ErrLeaseLost, leaseName, l.namespace)
	case now.Spec.HolderIdentity != l.holder:
		l.lost = fmt.Errorf("%w: another lab (%s) runs in namespace %s now", ErrLeaseLost, now.Spec.HolderIdentity, l.namespace)
	}
	return errors.Join(l.lost, err)
}

// Held returns an error if another lab may have the Lease now. A nil Lease is not
// lost.
func (l *Lease) Held() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost
	}
	if since := time.Since(l.renewed); since > l.times.lasts {
		return fmt.Errorf("%w: it could not be renewed for %v", ErrLeaseLost, since.Round(time.Second))
	}
	return nil
}

// Release ends the renewals and deletes the Lease.
func (l *Lease) Release(ctx context.Context) error {
	l.end()
	<-l.ended
	if err := l.Held(); err != nil {
		return err
	}
	_, err := l.client.Do(ctx, "", "delete", "lease", leaseName, "--ignore-not-found")
	return err
}
