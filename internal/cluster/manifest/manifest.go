// Package manifest reads the pods of manifests, and makes drafts of them for dry
// runs of the API server. It is pure: its caller reads the files and the API.
package manifest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/cluster/stored"
)

// Wanted is a number of equal pods in a manifest.
type Wanted struct {
	Name  string
	Pod   corev1.Pod
	Count int
	// EachNode means that there is one pod for each node, as with a DaemonSet.
	EachNode bool
	// Template means that a controller makes the pods, and names them. Kind is
	// the kind of the object with the template.
	Template bool
	Kind     string
	// Exists means that the name of a pod belongs to a pod that exists.
	Exists bool
	// NoManager is the reason why Tenon's webhooks do not answer, if tenon-manager
	// is known not to run.
	NoManager string
	// Admission is the answer of the API server to such a pod.
	Admission Admission
}

// A Set contains the pods of manifests, and the other objects that the admission
// of a pod may need.
type Set struct {
	Wanted []Wanted
	made   []madeObject
}

// A madeObject is an object, other than a pod, that the manifests create.
type madeObject struct{ kind, namespace, name string }

// admissionNeeds are the kinds of objects that a pod may refer to. The API
// server refuses the pod if such an object is missing.
var admissionNeeds = []string{"Namespace", "ServiceAccount", "PriorityClass", "RuntimeClass"}

// An object contains the fields of a manifest that Read needs.
type object struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

type controllerSpec struct {
	Replicas    *int                    `json:"replicas"`
	Parallelism *int                    `json:"parallelism"`
	Template    *corev1.PodTemplateSpec `json:"template"`
	JobTemplate struct {
		Spec controllerSpecOfJob `json:"spec"`
	} `json:"jobTemplate"`
}

type controllerSpecOfJob struct {
	Parallelism *int                    `json:"parallelism"`
	Template    *corev1.PodTemplateSpec `json:"template"`
}

// Read adds the pods of a file: pods, and the templates of objects that create
// pods (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob and others
// of this form). It ignores other objects, except those of admissionNeeds. An
// error contains the number of the document.
func (m *Set) Read(r io.Reader) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(r))
	for i := 1; ; i++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = m.add(text)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
	}
}

// SetNamespace sets the namespace of objects that have none. If strict is set,
// another namespace in an object is an error, as with kubectl.
func (m *Set) SetNamespace(namespace string, strict bool) error {
	for i := range m.Wanted {
		w := &m.Wanted[i]
		if strict && w.Pod.Namespace != "" && w.Pod.Namespace != namespace {
			return fmt.Errorf("%s is in namespace %s, and the flag -n says %s", w.Name, w.Pod.Namespace, namespace)
		}
		w.Pod.Namespace = cmp.Or(w.Pod.Namespace, namespace)
	}
	for i := range m.made {
		m.made[i].namespace = cmp.Or(m.made[i].namespace, namespace)
	}
	return nil
}

func (m *Set) makes(kind, namespace, name string) bool {
	return name != "" && slices.ContainsFunc(m.made, func(o madeObject) bool {
		return o.kind == kind && o.name == name && (kind != "ServiceAccount" || o.namespace == namespace)
	})
}

// add adds the pods of one document.
func (m *Set) add(text []byte) error {
	text, err := yaml.ToJSON(text)
	if err != nil || len(bytes.TrimSpace(text)) == 0 || bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
		return err
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return readable(err)
	}
	if o.Kind == "" {
		return errors.New("kind: want the kind of an object, such as Pod")
	}
	for i, item := range o.Items {
		if err := m.add(item); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	if len(o.Items) > 0 {
		return nil
	}
	if slices.Contains(admissionNeeds, o.Kind) {
		m.made = append(m.made, madeObject{o.Kind, o.Metadata.Namespace, o.Metadata.Name})
		return nil
	}
	w, err := wantedOf(o, text)
	if err == nil {
		err = unknownFields(o, text)
	}
	if err != nil && o.Metadata.Name != "" {
		return fmt.Errorf("%s %s: %w", o.Kind, o.Metadata.Name, err)
	}
	if err != nil {
		return err
	}
	if w != nil {
		m.Wanted = append(m.Wanted, *w)
	}
	return nil
}

// readable returns an error without the names of Go types.
func readable(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Field == "":
		return fmt.Errorf("its type is %s: want an object with the keys kind and spec", wrong.Value)
	}
	return fmt.Errorf("%s: its type is %s, which does not belong there", wrong.Field, wrong.Value)
}

// wantedOf returns the pods of an object, or nil if it makes none.
func wantedOf(o object, text []byte) (*Wanted, error) {
	if err := quantity.CheckPod(text); err != nil {
		if builtIn(o.Kind, o.APIVersion) != nil {
			return nil, err
		}
		return nil, nil // an object of another kind, whose fields have another meaning
	}
	if o.Kind == "Pod" {
		w := Wanted{Name: cmp.Or(o.Metadata.Name, o.Metadata.GenerateName), Count: 1}
		if err := json.Unmarshal(text, &w.Pod); err != nil {
			return nil, readable(err)
		}
		if w.Exists = stored.Exists(&w.Pod); w.Exists {
			w.Pod = *stored.Again(&w.Pod)
		}
		return &w, nil
	}
	var spec controllerSpec
	if err := json.Unmarshal(text, &struct {
		Spec *controllerSpec `json:"spec"`
	}{&spec}); err != nil {
		if builtIn(o.Kind, o.APIVersion) != nil {
			return nil, readable(err)
		}
		return nil, nil // an object of another kind, whose fields have another meaning
	}
	template, count := spec.Template, spec.Replicas
	if template == nil {
		template, count = spec.JobTemplate.Spec.Template, spec.JobTemplate.Spec.Parallelism
	} else if o.Kind == "Job" {
		count = spec.Parallelism
	}
	if template == nil {
		return nil, nil
	}
	w := Wanted{Name: o.Metadata.Name, Pod: corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, Count: 1, EachNode: o.Kind == "DaemonSet", Template: true, Kind: o.Kind}
	w.Pod.Namespace = o.Metadata.Namespace
	if count != nil {
		if *count < 0 || *count > math.MaxInt32 {
			return nil, fmt.Errorf("replicas or parallelism is %d: want 0 to %d", *count, math.MaxInt32)
		}
		w.Count = *count
	}
	return &w, nil
}

// AddPod adds a pod that exists, as its author could create it again.
func (m *Set) AddPod(p *corev1.Pod) {
	m.Wanted = append(m.Wanted, Wanted{Name: p.Name, Pod: *stored.Again(p), Count: 1, Exists: true})
}
