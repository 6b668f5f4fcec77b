package stored

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestThePodsOfADeploymentAreMadeByItsReplicaSets(t *testing.T) {
	yes := true
	for _, x := range []struct {
		ownerKind, owner, kind, name string
		want                         bool
	}{
		{"ReplicaSet", "web-5d9", "Deployment", "web", true},
		{"ReplicaSet", "web-5d9", "ReplicaSet", "web-5d9", true},
		{"ReplicaSet", "web-5d9", "Deployment", "we", false},
		{"ReplicaSet", "web-x-5d9", "Deployment", "web", false},
		{"ReplicaSet", "web", "Deployment", "web", false},
		{"Job", "night-29", "CronJob", "night", true},
		{"Job", "night-29", "Job", "night-29", true},
		{"StatefulSet", "db", "StatefulSet", "db", true},
		{"StatefulSet", "db-0", "Deployment", "db", false},
		{"StatefulSet", "db", "", "", false},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: x.ownerKind, Name: x.owner, Controller: &yes}}}}
		if got := IsMadeBy(p, x.kind, x.name); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
	if IsMadeBy(&corev1.Pod{}, "Deployment", "web") {
		t.Error("a pod without an owner")
	}
}
