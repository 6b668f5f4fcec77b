// Package webhooks says which requests of users the API server sends to the
// webhooks of Tenon, to which path, and what it does while no manager answers.
package webhooks

import (
	"fmt"
	"net/url"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/model/node"
)

// The paths of the webhooks.
const (
	PathMutatePod         = "/mutate-pod"
	PathValidatePod       = "/validate-pod"
	PathValidateConfig    = "/validate-config"
	PathValidateProfile   = "/validate-profile"
	PathValidateNamespace = "/validate-namespace"
	PathValidateQuota     = "/validate-quota"
)

// A Service is the address at which the API server reaches the webhooks: a
// Service of the cluster or, in tests, a URL.
type Service struct {
	Namespace, Name string
	Port            int32
	URL             string // if set, it replaces the other fields
}

func (s Service) client(path string) admissionv1.WebhookClientConfig {
	if s.URL != "" {
		whole := s.URL + path
		return admissionv1.WebhookClientConfig{URL: &whole}
	}
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: &path, Port: &s.Port}}
}

// DNSNames returns the DNS names by which the API server calls the service.
func (s Service) DNSNames() []string {
	if u, err := url.Parse(s.URL); err == nil && s.URL != "" {
		return []string{u.Hostname()}
	}
	full := s.Name + "." + s.Namespace + ".svc"
	return []string{full, full + ".cluster.local"}
}

// Configurations returns the two webhook configurations. They lack the CA, which the manager adds
// later.
//
// While no manager answers, the API server refuses three kinds of pods, which would run without
// limits: pods that are BE by their label, pods that are BE by the old annotation of ACK, and
// pods with batch resources. It admits all other pods, so that the cluster never waits for
// Tenon. A pod that a profile would make BE then starts unchanged, as an ordinary pod. In a
// namespace with LabelRequired, the API server refuses such a pod, too. It always refuses pods
// of class SYSTEM, and pods that Tenon is to leave alone, in namespaces that may not have them:
// Tenon would not bound them. A namespace with kube.LabelIgnore never waits.
func Configurations(name string, s Service, config client.ObjectKey) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	// The API server does not ask about pods that Tenon leaves alone, and of the
	// namespaces with that label only for the label of their pods.
	notIgnored := metav1.LabelSelectorRequirement{Key: kube.LabelIgnore, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}}
	managed := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{notIgnored}}
	ignored := map[string]string{kube.LabelIgnore: "true"}
	be := &metav1.LabelSelector{MatchLabels: map[string]string{kube.LabelQOSClass: string(node.BE)}, MatchExpressions: []metav1.LabelSelectorRequirement{notIgnored}}
	others := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: kube.LabelQOSClass, Operator: metav1.LabelSelectorOpNotIn, Values: []string{string(node.BE)}}, notIgnored,
	}}
	create, update := []admissionv1.OperationType{admissionv1.Create}, []admissionv1.OperationType{admissionv1.Update}
	both := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	closed, open := admissionv1.Fail, admissionv1.Ignore
	// Pods of the manager itself never wait for the webhooks, because the webhooks
	// answer only while a manager runs.
	notOurs := metav1.LabelSelectorRequirement{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{s.Namespace}}
	elsewhere := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{notOurs, notIgnored}}
	required := &metav1.LabelSelector{MatchLabels: map[string]string{LabelRequired: "true"}, MatchExpressions: []metav1.LabelSelectorRequirement{notIgnored}}
	without := func(label string, also *metav1.LabelSelector) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: append([]metav1.LabelSelectorRequirement{
			{Key: label, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}},
		}, also.MatchExpressions...)}
	}
	optional := without(LabelRequired, elsewhere)
	equal, none, again := admissionv1.Equivalent, admissionv1.SideEffectClassNone, admissionv1.IfNeededReinvocationPolicy
	quick, patient := int32(3), int32(10)

	mutating := func(name string, policy admissionv1.FailurePolicyType, timeout int32, objects, namespaces *metav1.LabelSelector) admissionv1.MutatingWebhook {
		return admissionv1.MutatingWebhook{
			Name: name + ".tenon.sh", ClientConfig: s.client(PathMutatePod), Rules: rule("", "v1", "pods", create), FailurePolicy: &policy, MatchPolicy: &equal,
			ObjectSelector: objects, NamespaceSelector: namespaces, SideEffects: &none, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &again,
		}
	}
	validating := func(name, path string, policy admissionv1.FailurePolicyType, timeout int32, rules []admissionv1.RuleWithOperations) admissionv1.ValidatingWebhook {
		which := &metav1.LabelSelector{}
		if path == PathValidatePod {
			which = managed
		}
		return admissionv1.ValidatingWebhook{
			Name: name + ".tenon.sh", ClientConfig: s.client(path), Rules: rules, FailurePolicy: &policy, MatchPolicy: &equal,
			ObjectSelector: which, NamespaceSelector: which, SideEffects: &none, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
		}
	}
	// These pods have no class label, but the node would treat them as BE.
	unnamed := mutating("unnamed.mutate", closed, patient, others, managed)
	unnamed.MatchConditions = []admissionv1.MatchCondition{{Name: "best-effort-by-other-words", Expression: bestEffortUnlabelled()}}
	m := &admissionv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.MutatingWebhook{
			mutating("be.mutate", closed, patient, be, managed),
			unnamed,
			mutating("required.mutate", closed, patient, others, required),
			mutating("pods.mutate", open, quick, others, optional),
			mutating("ignored.mutate", open, quick, managed, &metav1.LabelSelector{MatchLabels: ignored, MatchExpressions: []metav1.LabelSelectorRequirement{notOurs}}),
		},
	}
	beCreate := validating("be.validate", PathValidatePod, closed, patient, rule("", "v1", "pods", create))
	beCreate.ObjectSelector, beCreate.NamespaceSelector = be, without(LabelRequired, managed)
	otherCreate := validating("pods.validate", PathValidatePod, open, quick, rule("", "v1", "pods", create))
	otherCreate.ObjectSelector, otherCreate.NamespaceSelector = others, optional
	otherCreate.MatchConditions = []admissionv1.MatchCondition{{Name: "words-of-the-protocol", Expression: concernsTenon}}
	class := validating("class.validate", PathValidatePod, closed, patient, rule("", "v1", "pods", update))
	class.MatchConditions = []admissionv1.MatchCondition{{Name: "class-changes", Expression: changes(
		"labels", kube.LabelQOSClass, kube.LabelPriorityClass, kube.LabelSubPriority, kube.LabelIgnore) + " || " + changes("annotations", kube.AnnotationACKQOSClass, kube.AnnotationExtended)}}
	annotations := validating("annotations.validate", PathValidatePod, open, quick, rule("", "v1", "pods", update))
	annotations.NamespaceSelector = optional
	annotations.MatchConditions = []admissionv1.MatchCondition{{Name: "annotations-change", Expression: "object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})"}}
	// A resize of a pod is an update of its subresource. It can take the CPUs of
	// the pod, too.
	resizes := validating("resize.validate", PathValidatePod, open, quick, rule("", "v1", "pods/resize", update))
	resizes.NamespaceSelector, resizes.MatchConditions = optional, otherCreate.MatchConditions
	// In these namespaces the API server asks about every pod, and refuses it while
	// no manager answers. Other updates, such as that of a finalizer, do not wait.
	strict := validating("required.validate", PathValidatePod, closed, patient, append(rule("", "v1", "pods", both), rule("", "v1", "pods/resize", update)...))
	strict.NamespaceSelector = required
	strict.MatchConditions = []admissionv1.MatchCondition{{Name: "new-or-changed", Expression: "request.operation == 'CREATE' || request.?subResource.orValue('') == 'resize' || object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})"}}
	system := validating("system.validate", PathValidatePod, closed, patient, rule("", "v1", "pods", create))
	system.NamespaceSelector = without(tenant.LabelPrefix+string(tenant.System), elsewhere)
	system.MatchConditions = []admissionv1.MatchCondition{{Name: "class-system", Expression: fmt.Sprintf(
		"object.metadata.?labels[?'%s'].orValue(object.metadata.?annotations[?'%s'].orValue('')) == '%s'", kube.LabelQOSClass, kube.AnnotationACKQOSClass, node.System)}}
	// A pod that Tenon leaves alone is as little bounded as one of class SYSTEM.
	alone := validating("ignored.validate", PathValidatePod, closed, patient, rule("", "v1", "pods", create))
	alone.ObjectSelector, alone.NamespaceSelector = &metav1.LabelSelector{MatchLabels: ignored}, without(tenant.LabelPrefix+string(tenant.Ignore), elsewhere)
	configs := validating("config.validate", PathValidateConfig, open, quick, rule("", "v1", "configmaps", both))
	configs.MatchConditions = []admissionv1.MatchCondition{{Name: "settings", Expression: fmt.Sprintf(
		"request.namespace == '%[1]s' && request.name == '%[2]s' || request.name == '%[3]s' && request.namespace in ['%[1]s', 'koordinator-system', 'kube-system']", config.Namespace, config.Name, kube.PodConfigMap)}}
	profiles := validating("profile.validate", PathValidateProfile, open, quick, rule(configv1alpha1.GroupVersion.Group, configv1alpha1.GroupVersion.Version, "clustercolocationprofiles", both))
	namespaces := validating("namespace.validate", PathValidateNamespace, open, quick, rule("", "v1", "namespaces", both))
	namespaces.MatchConditions = []admissionv1.MatchCondition{{Name: "says-what-pods-may-have", Expression: fmt.Sprintf(
		"object.metadata.?labels.orValue({}).exists(k, k.startsWith('%s') || k == '%s') || '%s' in object.metadata.?annotations.orValue({})", tenant.LabelPrefix, kube.LabelIgnore, kube.AnnotationBatch)}}
	quotas := validating("quota.validate", PathValidateQuota, open, quick, rule("", "v1", "resourcequotas", both))
	quotas.MatchConditions = []admissionv1.MatchCondition{{Name: "batch-resources", Expression: "object.spec.?hard.orValue({}).exists(k, k.contains('kubernetes.io/batch-') || k.contains('kubernetes.io/mid-') || k.contains('koordinator.sh/') || k.contains('alibabacloud.com/'))"}}
	v := &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{beCreate, system, alone, strict, otherCreate, class, annotations, resizes, configs, profiles, namespaces, quotas},
	}
	return m, v
}

// LabelRequired is a label of a namespace. If it is true, the API server refuses new pods of
// the namespace while the webhook does not answer. So no pod starts without its profiles.
const LabelRequired = "tenon.sh/require-admission"

// concernsTenon is a CEL expression that is true for pods with a label, an annotation or a
// resource that Tenon reads, or with a priority of Koordinator's classes. The validating webhook must see these pods, because it might refuse
// them. The API server admits other pods without the webhook, even if no manager runs.
const concernsTenon = "[object.metadata.?labels.orValue({}), object.metadata.?annotations.orValue({})]." +
	"exists(m, m.exists(k, k.contains('koordinator.sh/') || k.startsWith('alibabacloud.com/') || k == 'cpuset-scheduler' || k == 'cpu-policy' || k == 'tenon.sh/objective' || k == 'tenon.sh/ignore')) || " +
	"object.spec.?priority.orValue(0) >= 3000 && object.spec.?priority.orValue(0) <= 9999 || " +
	"(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, " +
	"[c.?resources.?requests.orValue({}), c.?resources.?limits.orValue({})].exists(l, l.exists(n, " +
	"n.contains('koordinator.sh/') || n.startsWith('alibabacloud.com/') || n.startsWith('kubernetes.io/batch-') || n.startsWith('kubernetes.io/mid-'))))"

// bestEffortUnlabelled returns a CEL expression that is true for pods that are
// BE by ACK's annotation or by batch resources. The ObjectSelector of the
// webhook excludes pods that are BE by their label.
func bestEffortUnlabelled() string {
	var names []string
	for _, n := range kube.BatchNames() {
		names = append(names, "'"+string(n)+"'")
	}
	return fmt.Sprintf("object.metadata.?annotations[?'%s'].orValue('') == '%s' || "+
		"(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, "+
		"[c.?resources.?requests.orValue({}), c.?resources.?limits.orValue({})].exists(l, l.exists(n, n in [%s])))",
		kube.AnnotationACKQOSClass, node.BE, strings.Join(names, ", "))
}

func rule(group, version, resource string, operations []admissionv1.OperationType) []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}}}}
}

// changes returns a CEL expression that is true if a request changes, adds or
// removes one of the keys.
func changes(field string, keys ...string) string {
	text := ""
	for i, key := range keys {
		if i > 0 {
			text += " || "
		}
		text += fmt.Sprintf("object.metadata.?%[1]s[?'%[2]s'] != oldObject.metadata.?%[1]s[?'%[2]s']", field, key)
	}
	return text
}
