package manifest

import (
	"errors"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// builtIn returns an empty object of a kind of Kubernetes that is a pod or makes
// pods, or nil. A manifest without apiVersion is of the version that is common.
func builtIn(kind, apiVersion string) runtime.Object {
	of := func(group string, o runtime.Object) runtime.Object {
		if apiVersion != "" && apiVersion != group {
			return nil
		}
		return o
	}
	switch kind {
	case "Pod":
		return of("v1", &corev1.Pod{})
	case "ReplicationController":
		return of("v1", &corev1.ReplicationController{})
	case "Deployment":
		return of("apps/v1", &appsv1.Deployment{})
	case "ReplicaSet":
		return of("apps/v1", &appsv1.ReplicaSet{})
	case "StatefulSet":
		return of("apps/v1", &appsv1.StatefulSet{})
	case "DaemonSet":
		return of("apps/v1", &appsv1.DaemonSet{})
	case "Job":
		return of("batch/v1", &batchv1.Job{})
	case "CronJob":
		return of("batch/v1", &batchv1.CronJob{})
	}
	return nil
}

// unknownFields returns an error that names the fields of a manifest that its
// kind does not have. kubectl apply refuses them, too. It checks only the kinds
// of builtIn.
func unknownFields(o object, text []byte) error {
	into := builtIn(o.Kind, o.APIVersion)
	if into == nil {
		return nil
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme)); err != nil {
		return err
	}
	_, _, err := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true}).Decode(text, nil, into)
	unknown, strict := runtime.AsStrictDecodingError(err)
	if !strict {
		return nil // wantedOf returns other errors
	}
	var fields []string
	for _, err := range unknown.Errors() {
		fields = append(fields, err.Error())
	}
	return errors.New(strings.Join(fields, ", "))
}
