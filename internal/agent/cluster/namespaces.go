package cluster

import corev1 "k8s.io/api/core/v1"

// podConfigNamespaces returns the namespaces in which a ConfigMap named
// kube.PodConfigMap counts, the most important one first. own is the namespace
// of Tenon's settings. The others are those that the manuals of ACK name. In
// other namespaces, tenants could write a ConfigMap with this name.
func podConfigNamespaces(own string) []string {
	all := []string{own}
	for _, namespace := range []string{"koordinator-system", "kube-system"} {
		if namespace != own {
			all = append(all, namespace)
		}
	}
	return all
}

// joinNamespaces joins the data of the ConfigMaps in podConfigNamespaces. If a
// key is in several of them, the first one applies.
func joinNamespaces(found []*corev1.ConfigMap, own string) map[string]string {
	var data map[string]string
	for _, namespace := range podConfigNamespaces(own) {
		for _, m := range found {
			if m.Namespace != namespace {
				continue
			}
			for key, text := range m.Data {
				if data == nil {
					data = map[string]string{}
				}
				if _, given := data[key]; !given {
					data[key] = text
				}
			}
		}
	}
	return data
}
