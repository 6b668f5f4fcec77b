// Package apiserver is the API server as the agent of one node sees it: the
// few objects that concern the node, kept up to date by a watch, and the few
// requests that the agent makes. It keeps no more of an object than the agent
// reads.
package apiserver

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// perSecond and burst bound the requests of one agent: a few watches, a
	// report now and then, and at worst some dozens of evictions.
	perSecond = 10
	burst     = 20
	// patience is how long one request may take that is not a watch.
	patience = 10 * time.Second
	// evictPatience is the same bound for an eviction: the memory or CPU that
	// it should free is needed now.
	evictPatience = 2 * time.Second
)

// A Client talks to one API server. It is safe for concurrent use.
type Client struct {
	rest rest.Interface
}

// Config returns the configuration of a kubeconfig file; with an empty path,
// that of the service account of this process's pod.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server by the pod's service account: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server by kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// Open makes a client of a configuration, which it does not change. It opens no
// connection yet.
func Open(config *rest.Config) (*Client, error) {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst = perSecond, burst
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schemaV1)
	c.APIPath, c.GroupVersion = "/api", &schemaV1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Half the bytes of JSON, and decoded without reflection.
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.ContentType = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("open the API server %s: %w", c.Host, err)
	}
	return &Client{rest: client}, nil
}

// schemaV1 is the core group.
var schemaV1 = corev1.SchemeGroupVersion
