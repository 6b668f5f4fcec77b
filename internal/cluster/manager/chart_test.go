package manager

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/webhooks"
)

// TestTheChartAsksForTheSameWebhooks compares the webhooks of the Helm chart
// (test/chart) with those of package webhooks, so that the tests of this package also apply
// to an installation by Helm. There are two differences: the chart omits fields
// that the API server fills in, and excludes kube-system.
func TestTheChartAsksForTheSameWebhooks(t *testing.T) {
	text, err := os.ReadFile("../../../test/chart/testdata/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var mutating admissionv1.MutatingWebhookConfiguration
	var validating admissionv1.ValidatingWebhookConfiguration
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var raw map[string]any
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch raw["kind"] {
		case "MutatingWebhookConfiguration":
			convert(t, raw, &mutating)
		case "ValidatingWebhookConfiguration":
			convert(t, raw, &validating)
		}
	}
	const namespace = "tenon-system"
	m, v := webhooks.Configurations("tenon-manager", webhooks.Service{Namespace: namespace, Name: "tenon-manager", Port: 443}, client.ObjectKey{Namespace: namespace, Name: "slo-controller-config"})
	mutating.Labels, validating.Labels = nil, nil
	same := cmp.Options{
		cmpopts.EquateEmpty(),
		cmp.Transformer("Selector", func(s *metav1.LabelSelector) metav1.LabelSelector {
			if s == nil {
				return metav1.LabelSelector{}
			}
			s = s.DeepCopy()
			for i, e := range s.MatchExpressions {
				if e.Key == "kubernetes.io/metadata.name" {
					s.MatchExpressions[i].Values = nil
				}
			}
			return *s
		}),
	}
	if diff := cmp.Diff(m, &mutating, same); diff != "" {
		t.Errorf("MutatingWebhookConfiguration (-manager +chart):\n%s", diff)
	}
	if diff := cmp.Diff(v, &validating, same); diff != "" {
		t.Errorf("ValidatingWebhookConfiguration (-manager +chart):\n%s", diff)
	}
}

func convert(t *testing.T, raw map[string]any, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(raw, to, true); err != nil {
		t.Fatal(err)
	}
}
