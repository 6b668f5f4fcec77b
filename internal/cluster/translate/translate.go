// Package translate changes the pod templates of manifests as the webhook would
// change their pods. So the manifest itself says what the pods request, and what
// reads only the template, such as Kueue or a reviewer, sees the truth. The
// package is pure: its caller reads the files and the API.
package translate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeyaml "sigs.k8s.io/yaml"

	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/model/node"
)

// A Translator has the inputs of the webhook.
type Translator struct {
	// As has the profiles, the priority classes and the names of schedulers. Its
	// pod and its namespace are set for each template.
	As admission.Request
	// Namespaces are the known namespaces by name, with their labels.
	Namespaces map[string]*corev1.Namespace
	// Namespace is the namespace of objects that name none.
	Namespace string
	// Home is the namespace of Tenon itself, whose pods have all rights. It is empty
	// if it is not known.
	Home string
}

// A Place is a pod template in a stream of documents.
type Place struct {
	Document int    // from 1
	Object   string // kind, and namespace/name
	Field    string // the path of the template; empty for a Pod
}

// String prints `document 2: Job shop/encode: spec.template`.
func (p Place) String() string {
	text := fmt.Sprintf("document %d", p.Document)
	for _, more := range []string{p.Object, p.Field} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// field returns the path of a field of the pod in the object.
func (p Place) field(inPod string) string {
	return strings.Trim(p.Field+"."+inPod, ".")
}

// A Note is a warning of the webhook about a template.
type Note struct {
	Place
	Warning admission.Warning
}

// String prints a note as the author of the manifest reads it.
func (n Note) String() string {
	at := n.Place
	if n.Warning.Field != "" {
		at.Field = at.field(n.Warning.Field)
	}
	return at.String() + ": " + n.Warning.Problem
}

// Stream translates the pod templates of a stream of YAML or JSON documents. A
// document without batch work stays as it is, to the byte. A translated YAML
// document keeps its comments, its blank lines and the order of its fields. A
// translated JSON document has its fields in alphabetical order.
//
// An error names the document and, if there is one, the object and the field:
// a document that cannot be read, or a pod that the webhook would refuse, also
// if nothing of it is translated.
func (t Translator) Stream(stream []byte) (out []byte, notes []Note, err error) {
	number := 0
	for _, p := range split(stream) {
		out = append(out, p.separator...)
		if isEmpty(p.text) {
			out = append(out, p.text...)
			continue
		}
		number++
		text, said, err := t.document(p.text, number)
		if err != nil {
			return nil, nil, err
		}
		out, notes = append(out, text...), append(notes, said...)
	}
	return out, notes, nil
}

// document translates one document.
func (t Translator) document(text []byte, number int) ([]byte, []Note, error) {
	object, err := read(text)
	if err != nil {
		return nil, nil, fmt.Errorf("document %d: %w", number, err)
	}
	var edits []edit
	var notes []Note
	var places []template
	err = eachTemplate(object, nil, func(found template) error {
		found.Document = number
		said, changes, err := t.template(found)
		notes = append(notes, said...)
		if len(changes) > 0 {
			edits, places = append(edits, changes...), append(places, found)
		}
		return err
	})
	if err != nil {
		return nil, nil, inDocument(number, err)
	}
	if len(edits) == 0 {
		return text, notes, nil
	}
	changed, err := write(text, object, edits)
	if err == nil {
		err = t.check(changed, places)
	}
	if err != nil {
		return nil, nil, inDocument(number, err)
	}
	return changed, notes, nil
}

// inDocument adds the number of the document to an error that lacks a place.
func inDocument(number int, err error) error {
	if errors.As(err, new(placed)) {
		return err
	}
	return fmt.Errorf("document %d: %w", number, err)
}

// placed is an error with its place.
type placed struct {
	at  Place
	err error
}

func (e placed) Error() string { return e.at.String() + ": " + e.err.Error() }
func (e placed) Unwrap() error { return e.err }

// template returns the changes of one template, and the warnings about it. There
// are no changes if its pods are not batch work.
func (t Translator) template(at template) ([]Note, []edit, error) {
	before, err := at.pod()
	if wrong, is := errors.AsType[*quantity.FieldError](err); is {
		at.Field, err = at.field(wrong.Field), wrong.Err
	}
	if err != nil {
		return nil, nil, placed{at.Place, err}
	}
	before.Namespace = cmp.Or(before.Namespace, at.namespace, t.Namespace)
	after, verdict := t.mutate(before)
	judged := t.judge(after)
	if refused := (admission.Verdict{Refusals: append(verdict.Refusals, judged.Refusals...)}); !refused.Allowed() {
		for i := range refused.Refusals {
			refused.Refusals[i].Field = at.field(refused.Refusals[i].Field)
		}
		object := at.Place
		object.Field = ""
		return nil, nil, placed{object, errors.New(refused.Message())}
	}
	if kube.IsIgnored(after) || !isBatch(after) {
		return append(notesOf(at.Place, verdict.Warnings, admission.ProfileFaulty, admission.Undecided), notesOf(at.Place, judged.Warnings)...), nil, nil
	}
	changes, err := differences(before, asWritten(before, after), at.path)
	return notesOf(at.Place, append(verdict.Warnings, judged.Warnings...)), changes, err
}

// judge returns what the webhook says about a new pod that it has changed. If the
// namespace is not known, the webhook alone can tell what its labels allow: a
// warning says what holds without them.
func (t Translator) judge(p *corev1.Pod) admission.Verdict {
	home := tenant.Namespace{Name: p.Namespace, Home: t.Home}
	if n := t.Namespaces[p.Namespace]; n != nil {
		home.Labels = n.Labels
		return admission.ValidateCreate(p, home, false, nil)
	}
	open := home.Refuse(nil, p)
	home.Labels = map[string]string{}
	for _, right := range tenant.All() {
		home.Labels[tenant.LabelPrefix+string(right)] = "true"
	}
	v := admission.ValidateCreate(p, home, false, nil)
	for _, f := range open {
		v.Warnings = append(v.Warnings, admission.Warning{Code: admission.Undecided, Field: f.Field, Problem: "the labels of the namespace are not known, and without one " + f.Problem})
	}
	return v
}

// notesOf returns the warnings about a template: all, or those with these codes.
func notesOf(at Place, warnings []admission.Warning, codes ...admission.WarningCode) []Note {
	var notes []Note
	for _, w := range warnings {
		if len(codes) == 0 || slices.Contains(codes, w.Code) {
			notes = append(notes, Note{at, w})
		}
	}
	return notes
}

// mutate returns the pod as the webhook would change it. A profile that acts on a
// part of the pods does not act on a template.
func (t Translator) mutate(p *corev1.Pod) (*corev1.Pod, admission.Verdict) {
	r := t.As
	r.Pod, r.Namespace = t.created(p), t.Namespaces[p.Namespace]
	r.Draw = func() float64 { return 1 } // no probability below 100 % reaches it
	after, verdict := admission.Mutate(r)
	for name := range strings.SplitSeq(after.Annotations[admission.AnnotationProfiles], ",") {
		if skipped, is := strings.CutPrefix(name, "-"); is {
			verdict.Warnings = append(verdict.Warnings, admission.Warning{
				Code: admission.Undecided, Problem: fmt.Sprintf("ClusterColocationProfile %s changes a part of these pods (probability): it is left to the webhook", skipped),
			})
		}
	}
	return after, verdict
}

// asWritten returns the changed pod without what a manifest need not have: the
// list of profiles, which counts only with the seal of the manager, and the
// number of the priority, which the API server derives from the class.
func asWritten(before, after *corev1.Pod) *corev1.Pod {
	p := after.DeepCopy()
	delete(p.Annotations, admission.AnnotationProfiles)
	p.Spec.Priority, p.Spec.PreemptionPolicy = before.Spec.Priority, before.Spec.PreemptionPolicy
	return p
}

// PriorityClasses are the classes of the chart, for a Translator without a
// cluster. Only the range of a number counts, and a manifest gets none.
func PriorityClasses() map[string]schedulingv1.PriorityClass {
	all := map[string]schedulingv1.PriorityClass{}
	for class, band := range kube.Bands {
		all[string(class)] = schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: string(class)}, Value: band.Default}
	}
	return all
}

// created returns the pod as the webhook sees it for the first time: with the
// fields that the API server derives from its priority class, and without a list
// of profiles, which a manifest has if it was copied from a running pod.
func (t Translator) created(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	delete(p.Annotations, admission.AnnotationProfiles)
	delete(p.Annotations, admission.AnnotationSeal)
	if class, known := t.As.PriorityClasses[p.Spec.PriorityClassName]; known && p.Spec.Priority == nil {
		p.Spec.Priority, p.Spec.PreemptionPolicy = &class.Value, class.PreemptionPolicy
	}
	return p
}

// isBatch reports whether a pod is batch work: it is BE, or it has batch or mid
// resources.
func isBatch(p *corev1.Pod) bool {
	return kube.Class(p) == node.BE || p.Annotations[kube.AnnotationExtended] != ""
}

// check reads a changed document again, and asks the webhook about its
// templates. The webhook must leave them as they are.
func (t Translator) check(text []byte, places []template) error {
	object, err := read(text)
	if err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	return eachTemplate(object, nil, func(found template) error {
		for _, p := range places {
			if !reflect.DeepEqual(p.path, found.path) {
				continue
			}
			before, err := found.pod()
			if err != nil {
				return placed{p.Place, err}
			}
			before.Namespace = cmp.Or(before.Namespace, found.namespace, t.Namespace)
			after, _ := t.mutate(before)
			again, err := differences(before, asWritten(before, after), found.path)
			if err != nil {
				return placed{p.Place, err}
			}
			if len(again) > 0 {
				at := p.Place
				at.Field = fieldOf(again[0].path)
				return placed{at, errors.New("the webhook would change the translated pod again, because a profile acts differently the second time (labelSuffixes, mappings or a patch): leave this object to the webhook")}
			}
		}
		return nil
	})
}

// read reads a document as Kubernetes reads it.
func read(text []byte) (map[string]any, error) {
	raw := text
	if !json.Valid(text) {
		var err error
		if raw, err = kubeyaml.YAMLToJSON(text); err != nil {
			return nil, err
		}
	}
	value, err := generic(raw)
	if err != nil {
		return nil, err
	}
	object, is := value.(map[string]any)
	if !is {
		return nil, errors.New("want an object with the keys kind and spec")
	}
	return object, nil
}

// generic reads JSON, and keeps its numbers as they are written.
func generic(raw []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

// genericOf returns a value as JSON has it.
func genericOf(v any) (any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return generic(raw)
}

// differences returns the changes from one pod to another, for the template at
// path.
func differences(before, after *corev1.Pod, path []any) ([]edit, error) {
	a, err := genericOf(before)
	if err != nil {
		return nil, err
	}
	b, err := genericOf(after)
	if err != nil {
		return nil, err
	}
	return diff(a, b, path), nil
}

// errShared means that YAML has no field of its own for a change.
var errShared = errors.New("the document shares values by anchors or merges: write them out")

// write applies changes to a document.
func write(text []byte, object map[string]any, edits []edit) ([]byte, error) {
	for _, e := range edits {
		if !e.apply(object) {
			return nil, fmt.Errorf("%s: the document has no such field in this spelling", fieldOf(e.path))
		}
	}
	if json.Valid(text) {
		return printJSON(object, text)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	for _, e := range edits {
		if !e.applyTo(doc.Content[0]) {
			return nil, fmt.Errorf("%s: %w", fieldOf(e.path), errShared)
		}
	}
	out, err := printYAML(&doc)
	if err != nil {
		return nil, err
	}
	for _, try := range [][]byte{withBlanks(text, out), out} {
		got, err := read(try)
		if err != nil {
			return nil, fmt.Errorf("read the result: %w", err)
		}
		if reflect.DeepEqual(got, object) {
			return try, nil
		}
	}
	return nil, errShared
}
