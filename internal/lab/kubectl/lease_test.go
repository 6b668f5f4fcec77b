package kubectl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeLeases is a program that stands in for kubectl. It stores one Lease. Like
// the API server, it refuses to create the Lease twice, and refuses a patch
// whose test fails. The file calls lists the commands.
const fakeLeases = `cd %s
echo "$*" >> calls
fail() { echo "Error from server ($1)" >&2; exit 1; }
case "$*" in
"create -f -") cat > new.$$; mkdir held 2>/dev/null || fail AlreadyExists; mv new.$$ held/lease ;;
"get -o json lease"*) cat held/lease 2>/dev/null || fail NotFound ;;
"get -o json namespace"*) echo '{"metadata":{"labels":{"tenon.sh/lab":"test"}}}' ;;
"patch lease"*)
	me=$(echo "$*" | sed 's/.*holderIdentity","value":"\([^"]*\)".*/\1/')
	at=$(echo "$*" | sed 's/.*renewTime","value":"\([^"]*\)".*/\1/')
	grep -qF "\"holderIdentity\":\"$me\"" held/lease || fail Invalid
	sed -i "s/\"renewTime\":\"[^\"]*\"/\"renewTime\":\"$at\"/" held/lease ;;
"replace -f -") cat > new.$$; mv new.$$ held/lease ;;
"delete lease"*|"delete namespace"*) mv held gone.$$ 2>/dev/null; rm -rf gone.$$ ;;
esac`

// A cluster is a fake one, on which labs run.
type cluster struct {
	*testing.T
	dir string
	Client
}

func newCluster(t *testing.T) cluster {
	dir := t.TempDir()
	return cluster{t, dir, fake(t, fmt.Sprintf(fakeLeases, dir))}
}

// lab returns a lab that has not entered the namespace yet.
func (c cluster) lab() *Space {
	times := leaseTimes{lasts: 20 * time.Second, renew: 20 * time.Millisecond, look: 20 * time.Millisecond, answer: 10 * time.Second}
	return &Space{Client: c.Client, Target: Target{Namespace: "n"}, Experiment: "test", Objects: "jobs", times: times}
}

// removals returns the commands that remove objects or the namespace.
func (c cluster) removals() (all []string) {
	calls, _ := os.ReadFile(filepath.Join(c.dir, "calls"))
	for line := range strings.Lines(string(calls)) {
		if strings.HasPrefix(line, "delete jobs") || strings.HasPrefix(line, "delete namespace") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// setHolder makes another lab the holder of the Lease, which lasts a second.
func (c cluster) setHolder(name string) {
	c.Helper()
	text := `{"metadata":{"name":"tenon-lab","resourceVersion":"7"},"spec":{"holderIdentity":"` + name + `","leaseDurationSeconds":1,"renewTime":"2026-01-02T03:04:05.000000Z"}}`
	file := filepath.Join(c.dir, "held", "lease")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file+".new", []byte(text), 0o644), os.Rename(file+".new", file)); err != nil {
		c.Fatal(err)
	}
}

// TestASecondLabIsRefused starts two labs in one namespace. The second lab must
// remove nothing of the first one, even when the second lab ends.
func TestASecondLabIsRefused(t *testing.T) {
	c := newCluster(t)
	first, second := c.lab(), c.lab()
	if err := first.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(c.removals())
	err := second.Enter(t.Context())
	if err == nil || !strings.Contains(err.Error(), first.lease.holder) || !strings.Contains(err.Error(), "--namespace") {
		t.Errorf("the second lab: %v", err)
	}
	if err := second.Leave(); err != nil {
		t.Errorf("the second lab leaves: %v", err)
	}
	if all := c.removals(); len(all) != before {
		t.Errorf("it has removed: %q", all[before:])
	}
	if err := first.Leave(); err != nil {
		t.Errorf("the first lab leaves: %v", err)
	}
	if all := c.removals(); len(all) != before+1 {
		t.Errorf("removed at last: %q", all[before:])
	}
	third := c.lab()
	if err := errors.Join(third.Enter(t.Context()), third.Leave()); err != nil {
		t.Errorf("a lab after the first: %v", err)
	}
}

// TestWhatAKilledLabLeftIsRemoved starts a lab in a namespace whose Lease is
// not renewed any more.
func TestWhatAKilledLabLeftIsRemoved(t *testing.T) {
	c := newCluster(t)
	c.setHolder("killed")
	next, told := c.lab(), ""
	next.Tell = func(format string, args ...any) { told += fmt.Sprintf(format, args...) }
	if err := next.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(told, "a lab (killed) was in namespace n") {
		t.Errorf("said %q", told)
	}
	if all := c.removals(); len(all) != 1 || !strings.HasPrefix(all[0], "delete jobs -l tenon.sh/lab=test") {
		t.Errorf("removed: %q", all)
	}
	if err := next.Leave(); err != nil {
		t.Error(err)
	}
}

// TestALabWithoutItsLeaseRemovesNothing gives the Lease of a lab to another one,
// as happens when the first lab was suspended.
func TestALabWithoutItsLeaseRemovesNothing(t *testing.T) {
	c := newCluster(t)
	s := c.lab()
	if err := s.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(c.removals())
	for end := time.Now().Add(10 * time.Second); s.lease.Held() == nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c.setHolder("other") // again, because a renewal of the fake is not atomic
	}
	if err := s.Remove(t.Context(), "a=b", "background"); !errors.Is(err, ErrLeaseLost) || !strings.Contains(err.Error(), "other") {
		t.Errorf("removing: %v", err)
	}
	if err := s.Leave(); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("leaving: %v", err)
	}
	if all := c.removals(); len(all) != before {
		t.Errorf("removed: %q", all[before:])
	}
}
