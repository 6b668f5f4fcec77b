// Package kubelet reads the pods of a node, and the layout of their cgroups,
// from the authenticated API of the kubelet. If that API does not answer or
// refuses, the package reads the pods from the API server.
package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
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
	// maxAnswer is the maximum length of an answer, in bytes: enough for some
	// thousand pods.
	maxAnswer = 64 << 20
	// keptBuffer is the maximum size, in bytes, of the answer buffer that the
	// client keeps for the next request.
	keptBuffer = 2 << 20
	// answerWithin is the longest time that the kubelet may take to answer.
	answerWithin = 5 * time.Second
)

// ErrRefused means that the kubelet answers, but does not authorize this client
// or does not have the resource.
var ErrRefused = errors.New("refused")

// Options contain the address of the kubelet and the credentials of the client.
type Options struct {
	// URL is the address of the kubelet, such as https://10.0.0.1:10250.
	URL string
	// CAFile is a file with the certificate authority that signed the
	// certificate of the kubelet. The default is the authority of the API
	// server. A certificate that is in the kubelet's root directory is right, too,
	// by any signer. Insecure skips the check.
	CAFile   string
	Insecure bool
	// As holds the client configuration for the API server. The client uses the
	// same token or certificate for the kubelet. It reads a token file again from
	// time to time.
	As *rest.Config
	// Root is the path of the kubelet's root directory in this process. The
	// client does not read the directory if the path is empty.
	Root string
}

// A Client reads from one kubelet. Only one goroutine may use it at a time.
type Client struct {
	url  string
	root string
	http *http.Client

	body  bytes.Buffer
	pods  []corev1.Pod // pods of the last answer
	known map[text]int // index in pods by text; nil before the first answer
	texts []text       // texts of the answer that is being read
	seed  maphash.Seed
}

// A text identifies the JSON text of a pod by its hash. The seed of the hash is
// secret, so that no other process can make a different text with that hash.
type text struct {
	hash   uint64
	length int
}

// Open makes a client. It opens no connection yet.
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
	h, err := clientFor(config, o.Root)
	if err != nil {
		return nil, fmt.Errorf("open the kubelet at %s: %w", o.URL, err)
	}
	// Do not follow redirects: the token must not leave the kubelet.
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{url: strings.TrimSuffix(o.URL, "/"), root: o.Root, http: h}, nil
}

// Pods returns the pods that the kubelet runs or will run, including static pods.
// Each pod is reduced by Slim. same means that the answer equals the last one
// byte for byte. The caller must not change the pods.
func (c *Client) Pods(ctx context.Context) (pods []corev1.Pod, same bool, err error) {
	if err := c.read(ctx, "/pods"); err != nil {
		return nil, false, err
	}
	defer c.letGo()
	if pods, same, err = c.take(c.body.Bytes()); err != nil {
		return nil, false, fmt.Errorf("read the pods of the kubelet at %s: %w", c.url, err)
	}
	return pods, same, nil
}

// take decodes an answer. Pods whose text is unchanged are not decoded again.
func (c *Client) take(answer []byte) (pods []corev1.Pod, same bool, err error) {
	listed, err := items(answer)
	if err != nil {
		return nil, false, err
	}
	if c.known == nil {
		c.seed = maphash.MakeSeed()
	}
	c.texts = c.texts[:0]
	same = c.known != nil && len(listed) == len(c.known) && len(listed) == len(c.pods)
	for _, of := range listed {
		id := text{maphash.Bytes(c.seed, of), len(of)}
		c.texts = append(c.texts, id)
		_, known := c.known[id]
		same = same && known
	}
	if same && allDistinct(c.texts) {
		return c.pods, true, nil
	}
	now := make(map[text]int, len(listed))
	for i, of := range listed {
		var pod corev1.Pod
		if last, known := c.known[c.texts[i]]; known {
			pod = c.pods[last]
		} else {
			if err := json.Unmarshal(of, &pod); err != nil {
				return nil, false, fmt.Errorf("items[%d]: %w", i, err)
			}
			Slim(&pod)
		}
		now[c.texts[i]] = i
		pods = append(pods, pod)
	}
	c.pods, c.known = pods, now
	return pods, false, nil
}

// allDistinct reports whether all texts differ.
func allDistinct(texts []text) bool {
	seen := make(map[text]bool, len(texts))
	for _, id := range texts {
		seen[id] = true
	}
	return len(seen) == len(texts)
}

// TieredReservation is the value of memoryReservationPolicy with which the kubelet
// protects the memory of pods (KEP-2570): memory.min for Guaranteed pods, memory.low for
// Burstable ones.
const TieredReservation = "TieredReservation"

// Facts holds the settings of a kubelet that matter to Tenon.
type Facts struct {
	// CgroupDriver is cgroupfs or systemd.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
	// CgroupRoot is the parent cgroup of kubepods: / or a path.
	CgroupRoot string `json:"cgroupRoot,omitempty"`
	// CPUManagerPolicy is none or static. If it is static, the kubelet itself
	// writes the CPUs of containers.
	CPUManagerPolicy string `json:"cpuManagerPolicy,omitempty"`
	// CPUDriver is the DRA driver that writes the CPUs of containers, or empty.
	CPUDriver string `json:"cpuDriver,omitempty"`
	// ReservedCPUs lists the CPUs, such as 0-1, on which the kubelet runs no pod.
	// They are the kubelet's reservedSystemCPUs if the policy is static and
	// strict-cpu-reservation is on.
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
	// MemoryReservationPolicy is None, TieredReservation or empty. With the second one,
	// the kubelet itself writes memory.min and memory.low of pods by their requests.
	MemoryReservationPolicy string `json:"memoryReservationPolicy,omitempty"`
	// NoQuotas means that the kubelet sets no quota for CPU limits
	// (cpuCFSQuota: false).
	NoQuotas bool `json:"noQuotas,omitempty"`
}

// Facts reads the present configuration of the kubelet. The method Files finds
// the DRA driver.
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
	facts.ReservedCPUs, facts.CPUDriver, facts.NoQuotas = "", "", answer.KubeletConfig.Quotas != nil && !*answer.KubeletConfig.Quotas
	if facts.CPUManagerPolicy == "static" && answer.KubeletConfig.Options["strict-cpu-reservation"] == "true" {
		facts.ReservedCPUs = answer.KubeletConfig.Reserved
	}
	return facts, nil
}

// read sends a request and reads the answer into the buffer.
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
	n, err := c.body.ReadFrom(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the kubelet's answer to %s: %w", path, err)
	case n > maxAnswer:
		return fmt.Errorf("read the kubelet's answer to %s: it is longer than %d bytes", path, maxAnswer)
	}
	return nil
}

// letGo frees the buffer if it is larger than keptBuffer.
func (c *Client) letGo() {
	if c.body.Cap() > keptBuffer {
		c.body = bytes.Buffer{}
	}
}
