package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
)

// A server is a kubelet that requires a token and has a self-signed
// certificate.
type server struct {
	*httptest.Server
	token  atomic.Pointer[string]
	answer atomic.Pointer[string]
	status atomic.Int32           // status to answer with; 0: the normal answer
	more   atomic.Pointer[string] // added to the configuration
	asked  atomic.Int32
}

func serve(t *testing.T) *server {
	t.Helper()
	text, err := os.ReadFile("testdata/pods.json")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	token, answer, more := "right", string(text), ""
	s.more.Store(&more)
	s.token.Store(&token)
	s.answer.Store(&answer)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		switch {
		case s.status.Load() != 0:
			w.WriteHeader(int(s.status.Load()))
		case r.Header.Get("Authorization") != "Bearer "+*s.token.Load():
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/pods":
			fmt.Fprint(w, *s.answer.Load())
		case r.URL.Path == "/configz":
			fmt.Fprintf(w, `{"kubeletconfig":{"cgroupDriver":"systemd","cgroupRoot":"/","cpuManagerPolicy":"static","maxPods":110%s}}`, *s.more.Load())
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) open(t *testing.T, token string, change func(*Options)) *Client {
	t.Helper()
	o := Options{URL: s.URL, Insecure: true, As: &rest.Config{Host: "https://10.0.0.1", BearerToken: token}}
	if change != nil {
		change(&o)
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPodsComeWithoutWhatNobodyReads(t *testing.T) {
	s := serve(t)
	pods, same, err := s.open(t, "right", nil).Pods(context.Background())
	if err != nil || same || len(pods) != 3 {
		t.Fatalf("%d pods, same %v: %v", len(pods), same, err)
	}
	web := pods[0]
	if web.Namespace != "shop" || web.Labels["koordinator.sh/qosClass"] != "LS" || web.Spec.Containers[0].Resources.Limits.Cpu().MilliValue() != 2000 ||
		web.Status.ContainerStatuses[0].ContainerID != "containerd://0123abcd" || *web.Spec.TerminationGracePeriodSeconds != 30 || web.Status.QOSClass != "Burstable" {
		t.Errorf("a field that the agent reads is missing: %+v", web)
	}
	text, err := json.Marshal(pods)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"fieldsV1", "last-applied", "volumes\"", "livenessProbe", "\"env\"", "conditions"} {
		if strings.Contains(string(text), gone) {
			t.Errorf("%s is kept", gone)
		}
	}
}

func TestTheSameAnswerIsNotReadTwice(t *testing.T) {
	s := serve(t)
	c := s.open(t, "right", nil)
	first, _, err := c.Pods(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	again, same, err := c.Pods(context.Background())
	if err != nil || !same || &again[0] != &first[0] {
		t.Errorf("same %v: %v", same, err)
	}
	// The kubelet lists its pods in another order each time.
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal([]byte(*s.answer.Load()), &list); err != nil {
		t.Fatal(err)
	}
	tell := func(items ...json.RawMessage) {
		text, err := json.Marshal(map[string]any{"items": items})
		if err != nil {
			t.Fatal(err)
		}
		answer := string(text)
		s.answer.Store(&answer)
	}
	tell(list.Items...)
	if first, _, err = c.Pods(context.Background()); err != nil {
		t.Fatal(err)
	}
	tell(list.Items[2], list.Items[0], list.Items[1])
	if again, same, err := c.Pods(context.Background()); err != nil || !same || &again[0] != &first[0] {
		t.Errorf("in another order: same %v: %v", same, err)
	}
	tell(list.Items[2], list.Items[0])
	if pods, same, err := c.Pods(context.Background()); err != nil || same || len(pods) != 2 {
		t.Errorf("one has gone: %d, same %v: %v", len(pods), same, err)
	}
	tell(list.Items...)
	if pods, same, err := c.Pods(context.Background()); err != nil || same || len(pods) != 3 {
		t.Errorf("one has come: %d, same %v: %v", len(pods), same, err)
	}
	text := strings.Replace(*s.answer.Load(), `"phase":"Pending"`, `"phase":"Running"`, 1)
	s.answer.Store(&text)
	if pods, same, err := c.Pods(context.Background()); err != nil || same || pods[2].Status.Phase != "Running" {
		t.Errorf("a change was not seen: same %v, %v", same, err)
	}
}

func TestWhoIsNotLetInIsRefused(t *testing.T) {
	s := serve(t)
	if _, _, err := s.open(t, "wrong", nil).Pods(context.Background()); !errors.Is(err, ErrRefused) {
		t.Errorf("wrong token: %v", err)
	}
	for _, code := range []int32{401, 403, 404} {
		s.status.Store(code)
		if _, err := s.open(t, "right", nil).Facts(context.Background()); !errors.Is(err, ErrRefused) {
			t.Errorf("status %d: %v", code, err)
		}
	}
	s.status.Store(500)
	if _, err := s.open(t, "right", nil).Facts(context.Background()); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("a failing kubelet: %v, want an error other than ErrRefused", err)
	}
}

func TestTheCertificateIsCheckedUnlessToldOtherwise(t *testing.T) {
	s := serve(t)
	stranger := s.open(t, "right", func(o *Options) { o.Insecure = false })
	if _, _, err := stranger.Pods(context.Background()); err == nil {
		t.Error("a self-signed certificate is accepted")
	}
	if s.asked.Load() != 0 {
		t.Error("the token was sent to a kubelet with an unknown certificate")
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	signed := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, signed, 0o600); err != nil {
		t.Fatal(err)
	}
	known := s.open(t, "right", func(o *Options) { o.Insecure, o.CAFile = false, file })
	if _, _, err := known.Pods(context.Background()); err != nil {
		t.Error(err)
	}
	signers := x509.NewCertPool()
	signers.AddCert(s.Certificate())
	for host, want := range map[string]bool{"127.0.0.1": true, "127.0.0.2": false, "::1": true, "example.com": true, "node-1": false} {
		if err := verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{s.Certificate()}}, host, signers, ""); (err == nil) != want {
			t.Errorf("a certificate of 127.0.0.1, ::1 and example.com at %s: %v", host, err)
		}
	}
}

// TestAKubeletThatSignsItsOwnCertificateIsKnownByItsFile puts certificates into the
// root directory of a kubelet. Only the one that the server has is right.
func TestAKubeletThatSignsItsOwnCertificateIsKnownByItsFile(t *testing.T) {
	s := serve(t)
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	other := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("another")})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: s.Certificate().Raw})
	for name, c := range map[string]struct {
		file string
		text []byte
		want bool
	}{
		"its own":                 {"kubelet.crt", append(other, own...), true},
		"one that it has renewed": {"kubelet-server-current.pem", append(key, own...), true},
		"another":                 {"kubelet.crt", other, false},
		"a block of another type": {"kubelet.crt", key, false},
		"another file":            {"kubelet-client.crt", own, false},
		"no text":                 {"kubelet.crt", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "pki"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "pki", c.file), c.text, 0o600); err != nil {
				t.Fatal(err)
			}
			before := s.asked.Load()
			client := s.open(t, "right", func(o *Options) { o.Insecure, o.Root = false, root })
			_, _, err := client.Pods(context.Background())
			if (err == nil) != c.want || (s.asked.Load() > before) != c.want {
				t.Errorf("%v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "--kubelet-insecure") {
				t.Errorf("the error does not say what to do: %v", err)
			}
		})
	}
}

func TestFactsAreThoseOfTheConfigurationInForce(t *testing.T) {
	s := serve(t)
	facts, err := s.open(t, "right", nil).Facts(context.Background())
	want := Facts{CgroupDriver: "systemd", CgroupRoot: "/", CPUManagerPolicy: "static"}
	if err != nil || facts != want {
		t.Errorf("%+v, %v", facts, err)
	}
	// Without strict-cpu-reservation, the kubelet lets pods run on the reserved
	// CPUs.
	for more, reserved := range map[string]string{
		`,"reservedSystemCPUs":"0-1"`: "",
		`,"reservedSystemCPUs":"0-1","cpuManagerPolicyOptions":{"strict-cpu-reservation":"false"}`: "",
		`,"reservedSystemCPUs":"0-1","cpuManagerPolicyOptions":{"strict-cpu-reservation":"true"}`:  "0-1",
	} {
		s.more.Store(&more)
		want.ReservedCPUs = reserved
		if facts, err := s.open(t, "right", nil).Facts(context.Background()); err != nil || facts != want {
			t.Errorf("%s: %+v, %v", more, facts, err)
		}
	}
	want.ReservedCPUs = ""
	for more, none := range map[string]bool{`,"cpuCFSQuota":true`: false, `,"cpuCFSQuota":false`: true} {
		s.more.Store(&more)
		want.NoQuotas = none
		if facts, err := s.open(t, "right", nil).Facts(context.Background()); err != nil || facts != want {
			t.Errorf("%s: %+v, %v", more, facts, err)
		}
	}
	tiered := `,"memoryReservationPolicy":"TieredReservation"`
	s.more.Store(&tiered)
	want.NoQuotas, want.MemoryReservationPolicy = false, "TieredReservation"
	if facts, err := s.open(t, "right", nil).Facts(context.Background()); err != nil || facts != want {
		t.Errorf("%+v, %v", facts, err)
	}
}

func TestHalfAnAnswerIsNone(t *testing.T) {
	s := serve(t)
	whole := *s.answer.Load()
	c := s.open(t, "right", nil)
	for name, text := range map[string]string{
		"cut short": whole[:len(whole)/2], "cut at the end": strings.TrimSpace(whole)[:len(strings.TrimSpace(whole))-1], "no items": `{"kind":"PodList"}`, "no object": `[]`, "nothing": "",
		"items of another kind": `{"items":{"a":1}}`, "a pod of another shape": `{"items":[{"metadata":"x"}]}`,
	} {
		s.answer.Store(&text)
		if pods, _, err := c.Pods(context.Background()); err == nil {
			t.Errorf("%s: %d pods", name, len(pods))
		}
	}
	none := `{"kind":"PodList","items":null}`
	s.answer.Store(&none)
	if pods, _, err := c.Pods(context.Background()); err != nil || len(pods) != 0 {
		t.Errorf("a node without pods: %d pods, %v", len(pods), err)
	}
}

// FuzzPods checks that an invalid answer causes an error without pods, and no
// panic.
func FuzzPods(f *testing.F) {
	text, err := os.ReadFile("testdata/pods.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add(`{"items":[{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e999"}}}]}}]}`)
	f.Add(`{"items":[null]}`)
	f.Add(`{"a":{"items":[{}]},"items":[{"metadata":{"name":"}\\\"]{\\\\"}} , {"status":{}}],"b":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		pods, _, err := new(Client).take([]byte(text))
		if err != nil && pods != nil {
			t.Errorf("%d pods with an error", len(pods))
		}
		var list struct {
			Items []corev1.Pod `json:"items"`
		}
		if err == nil && json.Unmarshal([]byte(text), &list) == nil && len(list.Items) != len(pods) {
			t.Errorf("%d pods, want %d", len(pods), len(list.Items))
		}
	})
}

func TestAResizeThatIsNotAgreedToDoesNotCount(t *testing.T) {
	limits := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
	actual := limits("1")
	for _, condition := range []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress} {
		p := corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: limits("64")}}},
			Status: corev1.PodStatus{
				Conditions:        []corev1.PodCondition{{Type: condition, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "a", Resources: &actual}},
			},
		}
		Slim(&p)
		want := map[corev1.PodConditionType]int64{corev1.PodResizePending: 1, corev1.PodResizeInProgress: 64}[condition]
		if got := p.Spec.Containers[0].Resources.Limits.Cpu().Value(); got != want {
			t.Errorf("%s: %d, want %d", condition, got, want)
		}
	}
}

// TestTheTokenGoesOnlyToTheKubelet checks that the client does not follow a
// redirect. Another program may listen at the port of the kubelet, and must not
// get the token.
func TestTheTokenGoesOnlyToTheKubelet(t *testing.T) {
	var got atomic.Pointer[string]
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("Authorization")
		got.Store(&token)
	}))
	defer other.Close()
	points := httptest.NewTLSServer(http.RedirectHandler(other.URL+"/pods", http.StatusFound))
	defer points.Close()
	c, err := Open(Options{URL: points.URL, Insecure: true, As: &rest.Config{Host: points.URL, BearerToken: "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Pods(t.Context()); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("the answer of the redirect target is accepted: %v", err)
	}
	if token := got.Load(); token != nil {
		t.Errorf("the redirect target got a request with %q", *token)
	}
}
