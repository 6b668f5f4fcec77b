package kubectl

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const (
	inQuota  = `pods \"x-1\" is forbidden: exceeded quota: small, requested: cpu=4, used: cpu=0, limited: cpu=1`
	insecure = `pods \"x-1\" is forbidden: violates PodSecurity \"restricted:latest\": unrestricted capabilities`
)

// TestPodsThatTheAPIServerRefusesEndTheWait lets a Deployment and a Job create no
// pod. The error must have the reason.
func TestPodsThatTheAPIServerRefusesEndTheWait(t *testing.T) {
	for name, c := range map[string]struct{ owner, events, says string }{
		"a quota, said by a Deployment": {
			`{"metadata":{"uid":"u"},"status":{"conditions":[{"type":"Available","status":"False"},{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"` + inQuota + `"}]}}`,
			`exit 1`, "exceeded quota: small",
		},
		"PodSecurity, said by an event of a Job": {
			`{"metadata":{"uid":"u"},"status":{}}`,
			`echo '{"items":[{"involvedObject":{"uid":"other"},"message":"Error creating: ` + inQuota + `"},{"involvedObject":{"uid":"u"},"message":"Error creating: ` + insecure + `"}]}'`,
			"refuses the pods: pods \"x-1\" is forbidden: violates PodSecurity",
		},
	} {
		k := fake(t, `case "$*" in
*--watch*) exec sleep 100 ;;
*"get -o json things -l a=b"*) echo '{"items":[`+c.owner+`]}' ;;
*"get -o json events --field-selector reason=FailedCreate"*) `+c.events+` ;;
esac`)
		times := admissionTimes{look: time.Millisecond, stand: 5 * time.Millisecond, quota: 5 * time.Millisecond}
		_, err := k.gather(t.Context(), guard(t.Context(), k, "things", "a=b", 1, times), func(string, ...any) {})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhatPassesIsNoRefusal lists messages of controllers that create the pod
// later.
func TestWhatPassesIsNoRefusal(t *testing.T) {
	for message, want := range map[string]bool{
		`pods "x" is forbidden: error looking up service account n/default: serviceaccount "default" not found`: false,
		`Internal error occurred: failed calling webhook "be.mutate.tenon.sh": no endpoints available`:          false,
		`pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 4`:                           true,
		`admission webhook "be.mutate.tenon.sh" denied the request: want either`:                                true,
		`pods "x" is forbidden: exceeded quota: small, requested: cpu=4, used: cpu=0, limited: cpu=1`:           true,
		`pods "x" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volume "v")`:          true,
	} {
		if got := isRefusal(message); got != want {
			t.Errorf("%s: %v", message, got)
		}
	}
}

// TestPodsThatExistAreNotAskedFor checks that the wait for pods that exist goes
// on, although a quota refused pods before.
func TestPodsThatExistAreNotAskedFor(t *testing.T) {
	k := fake(t, `case "$*" in
*--watch*) echo "x|Pending|| "; sleep 0.2; echo "x|Running|now| "; exec sleep 100 ;;
*) echo '{"items":[{"metadata":{"uid":"u"},"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"`+inQuota+`"}]}}]}' ;;
esac`)
	times := admissionTimes{look: 100 * time.Millisecond, stand: 0, quota: 10 * time.Second}
	why, err := k.gather(t.Context(), guard(t.Context(), k, "things", "a=b", 1, times), func(string, ...any) {})
	if why != "" || err != nil {
		t.Errorf("%q, %v", why, err)
	}
}
