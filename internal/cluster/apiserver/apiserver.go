// Package apiserver is the agent's client of the API server. It watches the few
// objects that concern one node, and sends the few requests of the agent. Of
// each object, it keeps only the fields that the agent reads.
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
	// perSecond and burst limit the requests of one agent. The agent opens a few
	// watches, sends its reports, and evicts at most some dozens of pods.
	perSecond = 10
	burst     = 20
	// patience is the maximum time of a request other than a watch.
	patience = 10 * time.Second
	// evictPatience is the maximum time of an eviction request. It is shorter
	// than patience, because the node already lacks memory or CPU.
	evictPatience = 2 * time.Second
)

// A Client talks to one API server. It is safe for concurrent use.
type Client struct {
	rest rest.Interface
}

// Config returns the client configuration in a kubeconfig file. If the path is
// empty, it returns the configuration of the pod's service account.
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

// Open makes a client from a configuration. It does not change the
// configuration, and opens no connection yet.
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
	// Protobuf needs half the bytes of JSON, and is decoded without reflection.
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.ContentType = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("open the API server %s: %w", c.Host, err)
	}
	return &Client{rest: client}, nil
}

// schemaV1 is the group and version of the core API.
var schemaV1 = corev1.SchemeGroupVersion
