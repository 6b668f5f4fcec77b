package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/report"
)

// fakeNamespace is a program that stands in for kubectl, in a namespace that a
// user made. The file others lists the user's objects that have names of the
// experiment's. If there is a file busy, another lab renews the Lease. The file
// calls lists the commands.
const fakeNamespace = `cd %s
echo "$*" >> calls
fail() { echo "Error from server ($1)" >&2; exit 1; }
case "$*" in
"get -o json namespace"*) echo '{"metadata":{}}' ;;
"get -o json configmap"*) echo '{"data":{}}' ;;
"get -o json lease"*) [ -e busy ] || fail NotFound
	echo '{"spec":{"holderIdentity":"another lab","leaseDurationSeconds":60,"renewTime":"'$(wc -l < calls)'"}}' ;;
"get pod/nginx"*) cat others 2>/dev/null ;;
"create -f -") [ -e busy ] && fail AlreadyExists ;;
esac
exit 0`

// settle enters the fake namespace, with a file in it, and returns the
// commands.
func settle(t *testing.T, file, text string, then func(*pods)) (calls []string, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b := podsOf(t, kubectl.Client{Path: fakeKubectl(t, fmt.Sprintf(fakeNamespace, dir))})
	b.Undo = append(b.Undo, b.space.Leave)
	if err = b.space.Enter(t.Context()); err == nil {
		err = b.settleIn(t.Context())
	}
	if err == nil {
		then(b)
	}
	if err := b.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	all, readErr := os.ReadFile(filepath.Join(dir, "calls"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	return strings.Split(strings.TrimSpace(string(all)), "\n"), err
}

// removals returns the commands that remove or change objects other than the
// Lease of this lab and its own labelled objects.
func removals(calls []string) (all []string) {
	for _, c := range calls {
		own := strings.HasPrefix(c, "delete lease tenon-lab") || strings.HasPrefix(c, "delete pods,configmaps -l tenon.sh/lab=colocation ")
		verb, _, _ := strings.Cut(c, " ")
		if !own && (verb == "delete" || verb == "apply" || verb == "label" || verb == "patch" && !strings.HasPrefix(c, "patch lease")) {
			all = append(all, c)
		}
	}
	return all
}

func TestTheLabRemovesOnlyObjectsWithItsLabel(t *testing.T) {
	calls, err := settle(t, "others", "", func(b *pods) {
		for _, objects := range [][]object{b.nginxManifest(2), b.batchManifest(report.Default.Spec(), 0), b.batchManifest(report.Tenon.Spec(), 0)} {
			for _, o := range objects {
				if labels := o["metadata"].(object)["labels"].(object); labels["tenon.sh/lab"] != "colocation" {
					t.Errorf("%v: labels %v", o["kind"], labels)
				}
			}
		}
		if err := b.space.Clean(t.Context(), b.space.All(), "background"); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// The namespace is the user's. The labels are those of the tested node.
	want := []string{"label node a --overwrite tenon.sh/lab=tenon-lab", "label node a tenon.sh/lab-"}
	if got := removals(calls); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it removes or changes %q, want %q", got, want)
	}
}

// TestObjectsOfTheUserAreRefused has a pod and a ConfigMap of a user, with names
// of the experiment's.
// TestABatchPodThatTheNodeNoLongerCoversStartsAgain has a kubelet that refuses the
// first pod: between the lab's look and the kubelet's, the node offered less.
func TestABatchPodThatTheNodeNoLongerCoversStartsAgain(t *testing.T) {
	dir := t.TempDir()
	const kubelet = `cd %s
echo "$*" >> calls
case "$*" in
"get -o json pod batch"*) if [ -e removed ]; then echo '{"status":{"phase":"Running"}}'; else echo '{"status":{"phase":"Failed","reason":"OutOfkubernetes.io/batch-cpu"}}'; fi ;;
"get -o json node a"*) echo '{"metadata":{"name":"a"},"status":{"capacity":{"cpu":"2"},"allocatable":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"8Gi"}}}' ;;
"delete pods,configmaps -l tenon.sh/lab=colocation,app=batch"*) touch removed ;;
esac`
	b := podsOf(t, kubectl.Client{Path: fakeKubectl(t, fmt.Sprintf(kubelet, dir))})
	b.batch = 140
	if err := b.startBatch(t.Context(), b.batchManifest(report.SLOAware.Spec(), 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "removed")); err != nil {
		t.Error("the refused pod was not removed")
	}
}

func TestObjectsOfTheUserAreRefused(t *testing.T) {
	calls, err := settle(t, "others", "pod/nginx\nconfigmap/nginx-conf\n", func(*pods) {})
	if err == nil || !strings.Contains(err.Error(), "namespace tenon-lab has pod/nginx, configmap/nginx-conf, not of this lab") {
		t.Errorf("error %v", err)
	}
	if got := removals(calls); len(got) > 0 {
		t.Errorf("it removes or changes %q", got)
	}
}

func TestTheLabLeavesANamespaceWhereAnotherLabRuns(t *testing.T) {
	calls, err := settle(t, "busy", "", func(*pods) {})
	if err == nil || !strings.Contains(err.Error(), "another lab") {
		t.Errorf("error %v", err)
	}
	for _, c := range calls {
		if !strings.HasPrefix(c, "get ") && c != "create -f -" {
			t.Errorf("it ran kubectl %s", c)
		}
	}
}
