// Package quantity reads, counts and writes quantities of Kubernetes. It reads
// texts that any user may write. The parser of Kubernetes computes for hours, and
// needs gigabytes, for a quantity such as 1e-2147483647, and no caller can stop
// it.
package quantity

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The limits of a text. The longest useful quantity, an int64 with a sign and
// nine decimals, has 30 characters. The cost of a quantity grows with its
// exponent and its length. It does so when the text is parsed, and for a large
// positive exponent when the quantity is compared or added.
const (
	maxLength         = 40
	maxExponentDigits = 2
)

// Parse reads a quantity such as 1500m, 2Gi or 1e3. It refuses an exponent of
// more than two digits and a text of more than 40 characters. The error
// contains the text and the wanted form.
func Parse(text string) (resource.Quantity, error) {
	if !cheap(text) {
		return resource.Quantity{}, refuse(text)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, refuse(text)
	}
	return q, nil
}

// cheap reports whether the parser of Kubernetes may read a text. A text that
// is no quantity may be cheap, too.
func cheap(text string) bool {
	at := strings.IndexAny(text, "eE") // also the suffixes E and Ei
	return len(text) <= maxLength && (at < 0 || len(strings.TrimLeft(text[at+1:], "+-")) <= maxExponentDigits)
}

func refuse(text string) error {
	return fmt.Errorf("%.40q: want a quantity such as 1500 or 2Gi", text)
}

// A List is a list of resources that is read from JSON with Parse.
type List struct{ corev1.ResourceList }

// UnmarshalJSON reads a JSON object of quantities, which may be texts or
// numbers. An error names the first resource with a fault.
func (l *List) UnmarshalJSON(text []byte) error {
	var raw map[corev1.ResourceName]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	l.ResourceList = make(corev1.ResourceList, len(raw))
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		q, err := ofJSON(string(raw[name]))
		if err != nil {
			return fmt.Errorf("%.64q: %w", name, err)
		}
		l.ResourceList[name] = q
	}
	return nil
}

// ofJSON reads a quantity from a JSON value. As in Kubernetes, null is 0.
func ofJSON(raw string) (resource.Quantity, error) {
	if raw == "null" {
		return resource.Quantity{}, nil
	}
	return Parse(strings.TrimSpace(strings.Trim(raw, `"`)))
}

// fields lists the JSON fields of pods, and of the objects that create pods,
// that hold quantities: one of them, or several by the names of resources.
// words lists the fields that hold no quantity, but names of any user.
var (
	fields = []string{"allocatedResources", "capacity", "divisor", "limits", "overhead", "perContainer", "perPod", "quantity", "requests", "sizeLimit"}
	words  = []string{"metadata", "nodeSelector", "matchLabels", "volumeAttributes", "options"}
)

// CheckPod refuses the JSON of a pod, or of an object that creates pods, if one
// of its quantities has more than two digits in its exponent or more than 40
// characters. Call it before such a text is decoded into the type of Kubernetes.
// It does not refuse text that is no JSON, because json.Unmarshal does.
func CheckPod(text []byte) error {
	if !json.Valid(text) {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	return checkValue(d, "", "")
}

// ParsePod reads a pod that the API server sends to a webhook. The API server
// calls mutating webhooks before it has checked the quantities of a pod.
// Besides, each process of the cluster can send such an object. The error is a
// *FieldError if an amount of the pod or of a container is no quantity.
func ParsePod(text []byte) (pod corev1.Pod, err error) {
	if err = CheckPod(text); err == nil {
		err = json.Unmarshal(text, &pod)
	}
	if err != nil {
		if wrong := wrongAmount(text); wrong != nil {
			err = wrong
		}
	}
	return pod, err
}

// A FieldError is an amount of a pod that is no quantity.
type FieldError struct {
	// Field is the path of the amount, such as
	// "spec.containers[web].resources.limits[cpu]".
	Field string
	// Err quotes the value and says what to write instead.
	Err error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// wrongAmount returns the first amount of a pod that is no quantity, or nil. The
// error of the parser of Kubernetes names neither its container nor its text.
func wrongAmount(text []byte) *FieldError {
	type amounts = map[corev1.ResourceName]json.RawMessage
	type resources struct{ Limits, Requests amounts }
	type container struct {
		Name      string
		Resources resources
	}
	var pod struct {
		Spec struct {
			InitContainers, Containers []container
			Resources                  resources
			Overhead                   amounts
		}
	}
	if json.Unmarshal(text, &pod) != nil {
		return nil // the fault is in the form of the pod
	}
	var wrong *FieldError
	check := func(field string, all amounts) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if _, err := ofJSON(string(all[name])); err != nil && wrong == nil {
				wrong = &FieldError{fmt.Sprintf("%s[%.63s]", field, name), err}
			}
		}
	}
	both := func(field string, r resources) {
		check(field+".limits", r.Limits)
		check(field+".requests", r.Requests)
	}
	for _, c := range pod.Spec.InitContainers {
		both(fmt.Sprintf("spec.initContainers[%.63s].resources", c.Name), c.Resources)
	}
	for _, c := range pod.Spec.Containers {
		both(fmt.Sprintf("spec.containers[%.63s].resources", c.Name), c.Resources)
	}
	both("spec.resources", pod.Spec.Resources)
	check("spec.overhead", pod.Spec.Overhead)
	return wrong
}

// checkValue checks the next JSON value. name is its name. field is the name of
// the field with quantities that has the value, or empty if no field has it.
func checkValue(d *json.Decoder, field, name string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	text := ""
	switch v := token.(type) {
	case json.Delim:
		return checkInside(d, v, field, name)
	case string:
		text = strings.TrimSpace(v)
	case json.Number:
		text = v.String()
	}
	if field == "" || cheap(text) {
		return nil
	}
	if name != field {
		name = field + "." + name
	}
	return fmt.Errorf("%.80q: %w", name, refuse(text))
}

// checkInside checks the values of an object or a list, whose opening bracket
// is read.
func checkInside(d *json.Decoder, bracket json.Delim, field, name string) error {
	for d.More() {
		in, of := field, name
		if bracket == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			of, _ = token.(string)
			switch {
			case in != "":
			case isOneOf(fields, of):
				in = of
			case isOneOf(words, of):
				var skipped json.RawMessage
				if err := d.Decode(&skipped); err != nil {
					return err
				}
				continue
			}
		}
		if err := checkValue(d, in, of); err != nil {
			return err
		}
	}
	_, err := d.Token() // the closing bracket
	return err
}

// isOneOf reports whether a name of a JSON field is in a list. Like
// json.Unmarshal, it ignores the case of letters.
func isOneOf(list []string, name string) bool {
	return slices.ContainsFunc(list, func(of string) bool { return strings.EqualFold(of, name) })
}
