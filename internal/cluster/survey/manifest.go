package survey

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Wanted is a number of equal pods in a manifest.
type Wanted struct {
	Name  string
	Pod   corev1.Pod
	Count int
	// EachNode means that there is one pod for each node, as with a DaemonSet.
	EachNode bool
}

// An object has the fields of a manifest that Read needs.
type object struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
	Spec            json.RawMessage   `json:"spec"`
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

// Read reads the pods of manifests: pods, and the templates of objects that
// create pods (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob and
// others of this form). It ignores other objects. An error names the document.
func Read(r io.Reader) ([]Wanted, error) {
	var all []Wanted
	documents := yaml.NewYAMLReader(bufio.NewReader(r))
	for i := 1; ; i++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		found, err := wantedOf(text)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		all = append(all, found...)
	}
}

func wantedOf(text []byte) ([]Wanted, error) {
	text, err := yaml.ToJSON(text)
	if err != nil || len(bytes.TrimSpace(text)) == 0 || bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if o.Kind == "" {
		return nil, errors.New("kind: want the kind of an object, such as Pod")
	}
	var all []Wanted
	for i, item := range o.Items {
		found, err := wantedOf(item)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		all = append(all, found...)
	}
	if len(o.Items) > 0 {
		return all, nil
	}
	if o.Kind == "Pod" {
		w := Wanted{Name: o.Metadata.Name, Count: 1}
		err := json.Unmarshal(text, &w.Pod)
		w.Pod.Spec.NodeName = ""
		return []Wanted{w}, err
	}
	var spec controllerSpec
	if json.Unmarshal(o.Spec, &spec) != nil {
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
	w := Wanted{Name: o.Metadata.Name, Pod: corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, Count: 1, EachNode: o.Kind == "DaemonSet"}
	w.Pod.Namespace = o.Metadata.Namespace
	if count != nil {
		if *count < 0 {
			return nil, fmt.Errorf("%s %s: replicas or parallelism is %d: want at least 0", o.Kind, o.Metadata.Name, *count)
		}
		w.Count = *count
	}
	return []Wanted{w}, nil
}
