package kube

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAnOwnerIsOfTheNamespaceOfItsPod has pods name owners of another namespace. The API
// server checks neither kind nor name of an owner, and an agent remembers by the owner
// which work made a service wait.
func TestAnOwnerIsOfTheNamespaceOfItsPod(t *testing.T) {
	of := func(namespace, kind, name string) string {
		return ownerOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}}})
	}
	victims := []string{of("shop", "Job", "train"), of("shop", "Job", "train-29000000"), of("shop", "StatefulSet", "web")}
	if victims[0] != "Job/shop/train" || victims[1] != victims[0] {
		t.Errorf("the owners are %q", victims)
	}
	for _, kind := range []string{"Job", "Job/shop", "Job/shop/train", "StatefulSet/shop/web", "", "/"} {
		for _, name := range []string{"train", "/shop/train", "../shop/train", "train-29000000", "shop/train", ""} {
			if got := of("team", kind, name); slices.Contains(victims, got) || !strings.Contains(got, "/team/") {
				t.Errorf("an owner %q %q of namespace team counts as %q", kind, name, got)
			}
		}
	}
}
