// Package kubelet reads the pods of a node, and the layout of their cgroups,
// from the authenticated API of the kubelet. If the kubelet refuses or does not
// answer, the package reads the pods from the API server.
package kubelet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// Port is the port of the kubelet's authenticated API.
	Port = 10250
	// mostAnswer is the maximum length of an answer, in bytes: enough for some
	// thousand pods.
	mostAnswer = 64 << 20
	// keptBuffer is the maximum size, in bytes, of the buffer that is kept for
	// the next answer.
	keptBuffer = 2 << 20
	// answerWithin is the maximum time of an answer of the kubelet.
	answerWithin = 5 * time.Second
)

// ErrRefused means that the kubelet answers but does not authorize this client,
// or does not have the resource.
var ErrRefused = errors.New("refused")

// Options contain the address of the kubelet and the credentials of the client.
type Options struct {
	// URL is the address of the kubelet, such as https://10.0.0.1:10250.
	URL string
	// CAFile is a file with the certificate authority that signed the
	// certificate of the kubelet. If it is empty, the authority of the API
	// server counts. Insecure skips the check, for kubelets with self-signed
	// certificates.
	CAFile   string
	Insecure bool
	// As is the client configuration of the API server; its token or
	// certificate also authenticates to the kubelet. A token in a file is read
	// again from time to time.
	As *rest.Config
}

// A Client reads from one kubelet. Only one goroutine may use it at a time.
type Client struct {
	url  string
	http *http.Client

	body bytes.Buffer
	sum  [sha256.Size]byte // hash of the last answer about pods
	pods []corev1.Pod      // the pods in that answer
	good bool
}

// Open makes a client, without a connection yet.
func Open(o Options) (*Client, error) {
	config := rest.CopyConfig(o.As)
	config.Host, config.APIPath = o.URL, ""
	config.ServerName, config.Insecure = "", o.Insecure
	switch {
	case o.Insecure:
		config.CAFile, config.CAData = "", nil
	case o.CAFile != "":
		config.CAFile, config.CAData = o.CAFile, nil
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("open the kubelet at %s: %w", o.URL, err)
	}
	// Do not follow redirects: the token must not leave the kubelet.
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{url: strings.TrimSuffix(o.URL, "/"), http: h}, nil
}

// Pods returns the pods that the kubelet runs or is about to run, including
// static pods, reduced by Slim. same reports whether the answer is byte for
// byte equal to the last one. The caller must not change the pods.
func (c *Client) Pods(ctx context.Context) (pods []corev1.Pod, same bool, err error) {
	if err := c.read(ctx, "/pods"); err != nil {
		return nil, false, err
	}
	defer c.letGo()
	sum := sha256.Sum256(c.body.Bytes())
	if c.good && sum == c.sum {
		return c.pods, true, nil
	}
	pods, err = decodePods(&c.body)
	if err != nil {
		return nil, false, fmt.Errorf("read the pods of the kubelet at %s: %w", c.url, err)
	}
	c.pods, c.sum, c.good = pods, sum, true
	return pods, false, nil
}

// Facts holds the settings of a kubelet that matter to Tenon.
type Facts struct {
	// CgroupDriver is cgroupfs or systemd.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
	// CgroupRoot is the parent cgroup of kubepods: / or a path.
	CgroupRoot string `json:"cgroupRoot,omitempty"`
	// CPUManagerPolicy is none or static. With static, the kubelet writes the
	// CPUs of containers itself.
	CPUManagerPolicy string `json:"cpuManagerPolicy,omitempty"`
	// ReservedCPUs is the list of CPUs, such as 0-1, on which the kubelet runs
	// no pod: reservedSystemCPUs, if the policy is static and
	// strict-cpu-reservation is on.
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
	// NoQuotas means that the kubelet sets no quota for CPU limits
	// (cpuCFSQuota: false).
	NoQuotas bool `json:"noQuotas,omitempty"`
}

// Facts reads the configuration that the kubelet uses.
func (c *Client) Facts(ctx context.Context) (Facts, error) {
	if err := c.read(ctx, "/configz"); err != nil {
		return Facts{}, err
	}
	defer c.letGo()
	var answer struct {
		KubeletConfig *struct {
			Facts
			Reserved string            `json:"reservedSystemCPUs"`
			Options  map[string]string `json:"cpuManagerPolicyOptions"`
			Quotas   *bool             `json:"cpuCFSQuota"`
		} `json:"kubeletconfig"`
	}
	err := json.Unmarshal(c.body.Bytes(), &answer)
	if err == nil && answer.KubeletConfig == nil {
		err = errors.New("it has no kubeletconfig")
	}
	if err != nil {
		return Facts{}, fmt.Errorf("read the configuration of the kubelet at %s: %w", c.url, err)
	}
	facts := answer.KubeletConfig.Facts
	facts.ReservedCPUs, facts.NoQuotas = "", answer.KubeletConfig.Quotas != nil && !*answer.KubeletConfig.Quotas
	if facts.CPUManagerPolicy == "static" && answer.KubeletConfig.Options["strict-cpu-reservation"] == "true" {
		facts.ReservedCPUs = answer.KubeletConfig.Reserved
	}
	return facts, nil
}

// read reads an answer into the buffer.
func (c *Client) read(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return fmt.Errorf("ask the kubelet: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the kubelet for %s: %w", path, err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Errorf("ask the kubelet for %s%s: %w: %s", c.url, path, ErrRefused, answer.Status)
	default:
		return fmt.Errorf("ask the kubelet for %s%s: %s", c.url, path, answer.Status)
	}
	c.body.Reset()
	n, err := c.body.ReadFrom(io.LimitReader(answer.Body, mostAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the kubelet's answer to %s: %w", path, err)
	case n > mostAnswer:
		return fmt.Errorf("read the kubelet's answer to %s: it is longer than %d bytes", path, mostAnswer)
	}
	return nil
}

// letGo frees the buffer if it is larger than keptBuffer.
func (c *Client) letGo() {
	if c.body.Cap() > keptBuffer {
		c.body = bytes.Buffer{}
	}
}

// decodePods decodes a PodList one pod at a time, so that only one complete pod
// is in memory.
func decodePods(r io.Reader) ([]corev1.Pod, error) {
	d := json.NewDecoder(r)
	if err := open(d, '{'); err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	listed := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "items" {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return nil, fmt.Errorf("%v: %w", key, err)
			}
			continue
		}
		if pods, err = decodeItems(d); err != nil {
			return nil, err
		}
		listed = true
	}
	if _, err := d.Token(); err != nil { // without the closing brace, the answer is incomplete
		return nil, err
	}
	if !listed {
		return nil, errors.New("it lists no items")
	}
	return pods, nil
}

func decodeItems(d *json.Decoder) ([]corev1.Pod, error) {
	first, err := d.Token()
	switch {
	case err != nil:
		return nil, err
	case first == nil: // null: the list is empty
		return nil, nil
	case first != json.Delim('['):
		return nil, fmt.Errorf("items: %v: want a list", first)
	}
	var pods []corev1.Pod
	for d.More() {
		var pod corev1.Pod
		if err := d.Decode(&pod); err != nil {
			return nil, fmt.Errorf("items[%d]: %w", len(pods), err)
		}
		Slim(&pod)
		pods = append(pods, pod)
	}
	_, err = d.Token()
	return pods, err
}

func open(d *json.Decoder, want json.Delim) error {
	switch first, err := d.Token(); {
	case err != nil:
		return err
	case first != want:
		return fmt.Errorf("it begins with %v: want %v", first, want)
	}
	return nil
}
