package podpages

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFitSaysWhatRunsAlready places pods of which some run already.
func TestFitSaysWhatRunsAlready(t *testing.T) {
	yes := true
	by := func(kind, name string, pods ...string) func(*Cluster) {
		return func(c *Cluster) {
			for _, p := range pods {
				c.Pod("shop", p).OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &yes}}
			}
		}
	}
	template := func(kind, name string) string {
		return "kind: " + kind + "\nmetadata: {name: " + name + ", namespace: shop}\nspec: {template: {spec: {containers: [{name: c}]}}}\n"
	}
	named := func(name string) string { return strings.Replace(ownPod, "name: p,", "name: "+name+",", 1) }
	for name, x := range map[string]struct {
		text   string
		change func(*Cluster)
		want   string
	}{
		"a pod with own CPUs":   {named("db-0"), nil, "\nshop/db-0 runs on node-1 already: its CPUs 0-1,8-9 count as taken, and the answer is for one more pod\n"},
		"a pod with one CPU":    {named("cache-0"), nil, "its CPU 2 counts as taken"},
		"a pod with seats":      {named("web-0"), nil, "\nshop/web-0 runs on node-1 already: what it requests counts as taken"},
		"a pod that waits":      {named("db-2"), nil, ""},
		"a pod that has ended":  {named("db-0"), func(c *Cluster) { c.Pod("shop", "db-0").Status.Phase = corev1.PodFailed }, ""},
		"another pod":           {ownPod, nil, ""},
		"a template":            {template("StatefulSet", "db"), by("StatefulSet", "db", "db-0", "db-1", "db-2"), "\n2 pods of StatefulSet db run already: what they request, with 10 CPUs of their own, counts as taken, and the answer is for one more pod\n"},
		"a template of one":     {template("DaemonSet", "db"), by("DaemonSet", "db", "cache-0"), "\n1 pod of DaemonSet db runs already: its CPU 2 counts as taken, and the answer is for more pods\n"},
		"a template with seats": {template("Deployment", "web"), by("ReplicaSet", "web-5d", "web-0", "web-1"), "\n2 pods of Deployment web run already: what they request counts as taken"},
		"a pod that starts":     {named("db-0"), func(c *Cluster) { c.Pod("shop", "db-0").Status.Phase = corev1.PodPending }, "\nshop/db-0 is on node-1 already: its CPUs 0-1,8-9 count as taken"},
		"on no such node":       {named("db-0"), func(c *Cluster) { c.Pod("shop", "db-0").Spec.NodeName = "gone" }, "\nshop/db-0 names node gone, which does not exist: it does not run, and what it requests counts nowhere\n"},
		"two on no such node": {template("StatefulSet", "db"), func(c *Cluster) {
			by("StatefulSet", "db", "db-0", "db-1")(c)
			c.Pod("shop", "db-0").Spec.NodeName, c.Pod("shop", "db-1").Spec.NodeName = "gone", "too"
		}, "\n2 pods of StatefulSet db name nodes that do not exist, such as gone: "},
		"another template": {template("Deployment", "web"), by("ReplicaSet", "other-5d", "web-0"), ""},
	} {
		c := scene(t)
		if x.change != nil {
			x.change(c)
		}
		text, _ := fit(c, manifests(t, x.text).Wanted, Webhook{})
		if !strings.Contains(text, x.want) || x.want == "" && strings.Contains(text, "already") {
			t.Errorf("%s: want %q in\n%s", name, x.want, text)
		}
	}
}
