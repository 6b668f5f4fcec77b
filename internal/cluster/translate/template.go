package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/quantity"
)

// A part is one document of a stream, with the separator before it.
type part struct{ separator, text []byte }

// split splits a stream at its separators, which are lines that begin with "---"
// or end a document ("..."). Joined again, the parts are the stream.
func split(stream []byte) []part {
	all := []part{{}}
	for line := range bytes.SplitAfterSeq(stream, []byte("\n")) {
		if string(bytes.TrimRight(line, " \t\r\n")) == "..." {
			all = append(all, part{separator: line})
			continue
		}
		rest, is := bytes.CutPrefix(line, []byte("---"))
		if !is || len(rest) > 0 && !bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])) {
			last := &all[len(all)-1]
			last.text = append(last.text, line...)
			continue
		}
		content := bytes.TrimLeft(rest, " \t\r\n")
		if len(content) == 0 || content[0] == '#' {
			all = append(all, part{separator: line})
			continue
		}
		all = append(all, part{separator: line[:len(line)-len(content)], text: bytes.Clone(content)})
	}
	return all
}

// isEmpty reports whether a document has nothing but comments.
func isEmpty(text []byte) bool {
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// A template is a pod template of an object.
type template struct {
	Place
	path      []any // from the root of the document; keys and indexes
	value     map[string]any
	namespace string // that of the object
}

// pod returns a pod of the template. It has no fields but those of the template.
func (t template) pod() (*corev1.Pod, error) {
	raw, err := json.Marshal(map[string]any{"metadata": t.value["metadata"], "spec": t.value["spec"]})
	if err != nil {
		return nil, err
	}
	p, err := quantity.ParsePod(raw)
	return &p, err
}

// eachTemplate calls do for each pod template of an object or of a list of
// objects. A Pod is its own template. In an object of any other kind, a template
// is a field with the name template, below its spec or, for a PodTemplate, beside
// its metadata, with a list of containers in its spec. All kinds of Kubernetes
// that make pods have this form, and most others, such as JobSet, Kubeflow's
// jobs, Ray's clusters and Volcano's Job.
func eachTemplate(o map[string]any, at []any, do func(template) error) error {
	kind, _ := o["kind"].(string)
	if kind == "" {
		return fmt.Errorf("%s: want the kind of an object, such as Pod", fieldOf(append(slices.Clone(at), "kind")))
	}
	if items, is := o["items"].([]any); is && strings.HasSuffix(kind, "List") {
		for i, item := range items {
			one, is := item.(map[string]any)
			if !is {
				return fmt.Errorf("%s: want an object with the keys kind and spec", fieldOf(append(slices.Clone(at), "items", i)))
			}
			if err := eachTemplate(one, append(slices.Clone(at), "items", i), do); err != nil {
				return err
			}
		}
		return nil
	}
	metadata, _ := o["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	object := kind
	if name, _ := metadata["name"].(string); name != "" {
		object += " " + strings.Trim(namespace+"/"+name, "/")
	}
	say := func(path []any, value map[string]any) error {
		return do(template{Place: Place{Object: object, Field: fieldOf(path)}, path: path, value: value, namespace: namespace})
	}
	switch kind {
	case "Pod":
		return say(at, o)
	case "PodTemplate":
		return search(map[string]any{"template": o["template"]}, at, say)
	}
	return search(o["spec"], append(slices.Clone(at), "spec"), say)
}

// search looks for templates below a value.
func search(value any, at []any, say func([]any, map[string]any) error) error {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			path := append(slices.Clone(at), key)
			if of, is := v[key].(map[string]any); is && key == "template" && isTemplate(of) {
				if err := say(path, of); err != nil {
					return err
				}
				continue
			}
			if err := search(v[key], path, say); err != nil {
				return err
			}
		}
	case []any:
		for i := range v {
			if err := search(v[i], append(slices.Clone(at), i), say); err != nil {
				return err
			}
		}
	}
	return nil
}

// isTemplate reports whether a value has the form of a pod template.
func isTemplate(v map[string]any) bool {
	spec, _ := v["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	named := func(c any) bool {
		of, _ := c.(map[string]any)
		name, _ := of["name"].(string)
		return name != ""
	}
	return len(containers) > 0 && !slices.ContainsFunc(containers, func(c any) bool { return !named(c) })
}

// fieldOf prints a path: items[0].spec.template.
func fieldOf(path []any) string {
	var b strings.Builder
	for _, step := range path {
		switch s := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", s)
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s)
		}
	}
	return b.String()
}
