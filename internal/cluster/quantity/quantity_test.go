package quantity

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestParseReadsWhatKubernetesReads checks that Parse gives the same result as
// Kubernetes for the quantities that occur.
func TestParseReadsWhatKubernetesReads(t *testing.T) {
	for _, text := range []string{"0", "5", "-5", "+5", ".5", "1.5", "1500m", "1n", "2k", "3E", "2Gi", "2Ei", "1e3", "1E3", "1e-3", "12e+6", "1e99", "1e-99", "-9223372036854775807.123456789"} {
		want := resource.MustParse(text)
		if got, err := Parse(text); err != nil || got.Cmp(want) != 0 {
			t.Errorf("%s: %s, %v", text, got.String(), err)
		}
	}
}

func TestParseRefusesWhatCostsMuch(t *testing.T) {
	for _, text := range []string{
		"1e-2147483647", "1E-2147483647", "1e2147483647", "0e2147483647", "-1e100", "1e+999", "1e0000005", strings.Repeat("9", 41), "1" + strings.Repeat("0", 60) + "Ki",
		"", "x", "1e", "1e5e-2147483647", "1Xi",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), "want a quantity such as 1500 or 2Gi") || len(err.Error()) > 100 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAListIsReadFromJSON(t *testing.T) {
	var l List
	if err := json.Unmarshal([]byte(`{"cpu":"1k","memory":1048576,"a":null,"b":" 5 ","c":1e3}`), &l); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[corev1.ResourceName]int64{"cpu": 1000, "memory": 1 << 20, "a": 0, "b": 5, "c": 1000} {
		if q, has := l.ResourceList[name]; !has || q.Value() != want {
			t.Errorf("%s is %s, want %d", name, q.String(), want)
		}
	}
	for text, want := range map[string]string{
		`{"memory":"1e-2147483647","cpu":"1e2147483647"}`: `"cpu": "1e2147483647": want a quantity such as 1500 or 2Gi`,
		`{"cpu":1e-2147483647}`:                           `"cpu": "1e-2147483647": want a quantity such as 1500 or 2Gi`,
		`{"cpu":{"a":1}}`:                                 `"cpu": "{\"a\":1}": want a quantity such as 1500 or 2Gi`,
		`{"cpu":"1\u00652147483647"}`:                     `"cpu": "1\\u00652147483647": want a quantity such as 1500 or 2Gi`,
	} {
		if err := json.Unmarshal([]byte(text), &List{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestPodsWithQuantitiesThatCostMuchAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e-2147483647"}}}]}}`:                              `"limits.cpu": "1e-2147483647": want`,
		`{"spec":{"initContainers":[{"resources":{"requests":{"memory":"1","cpu":1e2147483647}}}]}}`:              `"requests.cpu": "1e2147483647": want`,
		`{"SPEC":{"Containers":[{"Resources":{"LIMITS":{"cpu":"1e-2147483647"}}}]}}`:                              `"LIMITS.cpu": "1e-2147483647": want`,
		`{"spec":{"overhead":{"metadata":" 1e-2147483647 "}}}`:                                                    `"overhead.metadata": "1e-2147483647": want`,
		`{"spec":{"volumes":[{"emptyDir":{}},{"emptyDir":{"sizeLimit":"1e-2147483647"}}]}}`:                       `"sizeLimit": "1e-2147483647": want`,
		`{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"1e-2147483647"}}}]}]}}`:      `"divisor": "1e-2147483647": want`,
		`{"metadata":{"name":"a"},"spec":{"template":{"spec":{"resources":{"limits":{"cpu":"1e-2147483647"}}}}}}`: `"limits.cpu": "1e-2147483647": want`,
		`{"status":{"allocatedResources":{"cpu":"` + strings.Repeat("9", 1000) + `"}},"spec":{}}`:                 `"allocatedResources.cpu": "99`,
		`{"status":{"resources":{"requests":{"a":[{"b\n":"1e999"}]}}}}`:                                           `"requests.b\n": "1e999": want`,
	} {
		if err := CheckPod([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	long := strings.Repeat("x", 50)
	for _, text := range []string{
		"", "{", "null", "5", `"1e-2147483647"`, "[1e-2147483647]", `{"limits":`, strings.Repeat("[", 9000) + strings.Repeat("]", 9000), strings.Repeat("[", 1_000_000),
		`{"metadata":{"labels":{"capacity":"12e456"},"annotations":{"limits":"` + long + `"}},"spec":{"nodeSelector":{"quantity":"12e456"},"containers":[{"args":["1e-2147483647"],` +
			`"env":[{"name":"A","value":"7e1234567"}],"resources":{"limits":{"cpu":"1","memory":1e3},"requests":null,"claims":[{"name":"` + long + `"}]}}]}}`,
	} {
		if err := CheckPod([]byte(text)); err != nil {
			t.Errorf("%.80q: %v", text, err)
		}
	}
}

// TestAWrongAmountIsNamed reads pods with an amount that is no quantity, or one that
// costs much.
func TestAWrongAmountIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"spec":{"containers":[{"name":"a"},{"name":"b","resources":{"claims":[{"name":"c"}],"limits":{"cpu":"5OOm"}}}]}}`: `spec.containers[b].resources.limits[cpu]: "5OOm": want`,
		`{"spec":{"initContainers":[{"name":"i","resources":{"requests":{"memory":"1 Gi","cpu":2}}}]}}`:                     `spec.initContainers[i].resources.requests[memory]: "1 Gi": want`,
		`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-2147483647"}}}]}}`:                             `spec.containers[a].resources.limits[cpu]: "1e-2147483647": want`,
		`{"spec":{"overhead":{"cpu":""}}}`:                   `spec.overhead[cpu]: "": want`,
		`{"spec":{"resources":{"limits":{"memory":"2gb"}}}}`: `spec.resources.limits[memory]: "2gb": want`,
	} {
		_, err := ParsePod([]byte(text))
		if wrong, is := errors.AsType[*FieldError](err); !is || !strings.HasPrefix(wrong.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"x"}}]}}`, `{"spec":{"containers":{"name":"a"}}}`, `{`} {
		if _, err := ParsePod([]byte(text)); err == nil || errors.As(err, new(*FieldError)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestTheFieldsWithQuantitiesAreListed compares the list of fields with the
// types of Kubernetes: pods, and the objects that create pods. It also checks
// that the fields whose content CheckPod skips have no quantities.
func TestTheFieldsWithQuantitiesAreListed(t *testing.T) {
	found := map[string]bool{}
	for _, object := range []any{
		corev1.Pod{}, corev1.ReplicationController{}, appsv1.Deployment{}, appsv1.ReplicaSet{}, appsv1.StatefulSet{}, appsv1.DaemonSet{}, batchv1.Job{}, batchv1.CronJob{},
	} {
		seen := map[reflect.Type]bool{}
		visit(reflect.TypeOf(object), seen, func(name string) { found[name] = true })
		for of := range seen {
			for i := range of.NumField() {
				if f := of.Field(i); isOneOf(words, jsonName(f)) {
					visit(f.Type, map[reflect.Type]bool{}, func(name string) { t.Errorf("%v.%s has the quantity %s", of, f.Name, name) })
				}
			}
		}
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, fields) {
		t.Errorf("the types have quantities in %q, the list has %q", got, fields)
	}
}

// visit calls say with the JSON name of each field with quantities in a type,
// and adds the types of structs in it to seen.
func visit(of reflect.Type, seen map[reflect.Type]bool, say func(string)) {
	if of = element(of); of.Kind() != reflect.Struct || seen[of] {
		return
	}
	seen[of] = true
	for i := range of.NumField() {
		if f := of.Field(i); element(f.Type) == reflect.TypeFor[resource.Quantity]() {
			say(jsonName(f))
		} else {
			visit(f.Type, seen, say)
		}
	}
}

// element returns the type of the values in pointers, slices and maps.
func element(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	return of
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// FuzzCheckPod reads pods that CheckPod lets pass. Whatever their text is, it
// must be possible to read them, to compare their quantities and to print them.
func FuzzCheckPod(f *testing.F) {
	f.Add([]byte(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e-2147483647"}}}]}}`))
	f.Add([]byte(`{"Spec":{"overhead":{"cpu":1e99},"containers":[{"Resources":{"LimitS":{"cpu":" 1e-99 "},"requests":{"cpu":null}}}]}}`))
	f.Add([]byte(`{"metadata":{"limits":{"a":"1e-2147483647"}},"spec":{"initContainers":[],"nodeSelector":{"limits":"x"},"volumes":[{"emptyDir":{"sizeLimit":"1E5"}}]}}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		var p corev1.Pod
		if CheckPod(text) != nil || json.Unmarshal(text, &p) != nil {
			return
		}
		one := resource.MustParse("1")
		for _, c := range p.Spec.Containers {
			for _, q := range c.Resources.Limits {
				q.Cmp(one)
			}
		}
		_, _ = json.Marshal(&p)
	})
}
