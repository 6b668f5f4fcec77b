package translate

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	kubeyaml "sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

// Learn reads profiles, and the priority classes and namespaces to which they
// refer, from a stream of documents. Any other object, and a field that an object
// does not have, is an error.
func (t *Translator) Learn(stream []byte) error {
	number := 0
	for _, p := range split(stream) {
		if isEmpty(p.text) {
			continue
		}
		number++
		object, err := read(p.text)
		if err == nil {
			err = t.learn(object)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
	}
	return nil
}

// learn takes one object, or the objects of a list.
func (t *Translator) learn(object map[string]any) error {
	kind, _ := object["kind"].(string)
	into := func(v any) error {
		raw, err := json.Marshal(object)
		if err == nil {
			err = kubeyaml.UnmarshalStrict(raw, v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		return nil
	}
	switch kind {
	case "ClusterColocationProfile":
		var p configv1alpha1.ClusterColocationProfile
		if err := into(&p); err != nil {
			return err
		}
		t.As.Profiles = append(t.As.Profiles, p)
	case "PriorityClass":
		var c schedulingv1.PriorityClass
		if err := into(&c); err != nil {
			return err
		}
		if t.As.PriorityClasses == nil {
			t.As.PriorityClasses = map[string]schedulingv1.PriorityClass{}
		}
		t.As.PriorityClasses[c.Name] = c
	case "Namespace":
		var n corev1.Namespace
		if err := into(&n); err != nil {
			return err
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[corev1.LabelMetadataName] = n.Name // the API server writes it
		if t.Namespaces == nil {
			t.Namespaces = map[string]*corev1.Namespace{}
		}
		t.Namespaces[n.Name] = &n
	case "List", "ClusterColocationProfileList":
		items, is := object["items"].([]any)
		if !is {
			return fmt.Errorf("%s: items: want a list of objects", kind)
		}
		for i, item := range items {
			one, _ := item.(map[string]any)
			if err := t.learn(one); err != nil {
				return fmt.Errorf("items[%d]: %w", i, err)
			}
		}
	default:
		return fmt.Errorf("kind: %.64q: want ClusterColocationProfile, PriorityClass or Namespace", kind)
	}
	return nil
}
