package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fields are the fields that a kind has in the API server, by its OpenAPI schema. A
// server with an older CustomResourceDefinition has fewer than this program.
type Fields struct {
	Properties map[string]*Fields `json:"properties"`
	Items      *Fields            `json:"items"`
	Any        bool               `json:"x-kubernetes-preserve-unknown-fields"`
}

// Refused reports whether err is the answer of an API server that does not accept the
// content of an object. For a field that it does not know, it answers a server-side
// apply with status 500.
func Refused(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// Fields returns the fields that a kind has in the API server. Every client with an
// account may ask for them.
func (c *Client) Fields(ctx context.Context, kind schema.GroupVersionKind) (*Fields, error) {
	path := fmt.Sprintf("/openapi/v3/apis/%s/%s", kind.Group, kind.Version)
	text, err := c.rest.Get().AbsPath(path).SetHeader("Accept", "application/json").Timeout(patience).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("ask for the fields of %s: %w", kind.Kind, err)
	}
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Fields
				Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read the fields of %s: %w", kind.Kind, err)
	}
	for _, s := range document.Components.Schemas {
		if slices.Contains(s.Kinds, kind) {
			return &s.Fields, nil
		}
	}
	return nil, fmt.Errorf("find %s in %s: %w", kind.Kind, path, ErrAbsent)
}

// Drop removes from an object what has no field, and returns the paths of what it
// removed, in order. A path has no index: fields of all elements of a list are one.
func (f *Fields) Drop(object map[string]any) []string {
	var dropped []string
	f.drop(object, "", &dropped)
	slices.Sort(dropped)
	return slices.Compact(dropped)
}

func (f *Fields) drop(v any, path string, dropped *[]string) {
	switch v := v.(type) {
	case []any:
		if f.Items != nil {
			for _, element := range v {
				f.Items.drop(element, path, dropped)
			}
		}
	case map[string]any:
		if f.Any || f.Properties == nil {
			return // a map with keys of its own, or an object of any content
		}
		for key, inner := range v {
			field, is := f.Properties[key]
			if !is {
				delete(v, key)
				*dropped = append(*dropped, path+"."+key)
				continue
			}
			field.drop(inner, path+"."+key, dropped)
		}
	}
}
