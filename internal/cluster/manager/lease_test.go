package manager

import (
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"

	"tenon.sh/tenon/internal/cluster/certificate"
)

// TestTheLeaseIsAskedForSeldom checks the requests of two replicas on an idle cluster. Together
// they must send less than one request for their lease in three seconds. A leader that cannot
// renew the lease must stop before the next leader begins.
func TestTheLeaseIsAskedForSeldom(t *testing.T) {
	o := Options{Name: "tenon-manager", Namespace: "tenon-system", Elect: true}.runtime(runtime.NewScheme(), logr.Discard(), new(certificate.Serving))
	// In each period, the leader writes the lease, and the other replica reads
	// it.
	if rate := 2 / o.RetryPeriod.Seconds(); rate > 1.0/3 {
		t.Errorf("%.2f requests per second for the lease", rate)
	}
	if *o.RetryPeriod >= *o.RenewDeadline || *o.RenewDeadline >= *o.LeaseDuration {
		t.Errorf("retry %v, renew within %v, lease %v", *o.RetryPeriod, *o.RenewDeadline, *o.LeaseDuration)
	}
}
