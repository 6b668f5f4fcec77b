package testbed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/unit"
)

func TestTreeIsKubelets(t *testing.T) {
	eight := unit.CPUSetOf(0, 1, 2, 3, 4, 5, 6, 7)
	tests := map[string]struct {
		pods Pods
		want string
	}{
		"best effort": {Pods{Root: "lab", Tested: eight}, `
lab/kubepods 8192
lab/kubepods/burstable 8192
lab/kubepods/burstable/pod-nginx 8192
lab/kubepods/burstable/pod-nginx/nginx 8192
lab/kubepods/besteffort 2
lab/kubepods/besteffort/pod-ffmpeg 2
lab/kubepods/besteffort/pod-ffmpeg/ffmpeg 2
`},
		"requests": {Pods{Root: "lab", Tested: eight, Request: 5000}, `
lab/kubepods 8192
lab/kubepods/burstable 13312
lab/kubepods/burstable/pod-nginx 8192
lab/kubepods/burstable/pod-nginx/nginx 8192
lab/kubepods/burstable/pod-ffmpeg 5120
lab/kubepods/burstable/pod-ffmpeg/ffmpeg 5120
`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for _, g := range tt.pods.groups() {
				fmt.Fprintln(&b, g.path, g.shares)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWeightsAreKubelets(t *testing.T) {
	// The weights on cgroup v2 have the scale of the kubelet, which differs
	// from the scale of the kernel.
	for shares, want := range map[int64]int64{2: 1, 1024: 39, 8192: 313, 262144: 10000} {
		if got := weightOf(shares, 2).V2(); got != want {
			t.Errorf("shares %d: weight %d, want %d", shares, got, want)
		}
		if got := weightOf(shares, 1).Shares(); got != shares {
			t.Errorf("shares %d: %d on cgroup v1", shares, got)
		}
	}
}

func TestTenonMeetsTheServiceBelowKubepods(t *testing.T) {
	p := Pods{Root: "lab", Tested: unit.CPUSetOf(0)}
	ls, be := p.Workloads()[0], p.Workloads()[1]
	if ls.ContentionRoot.Parent() != be.ContentionRoot.Parent() || ls.ContentionRoot == be.ContentionRoot {
		t.Errorf("%s and %s are not siblings", ls.ContentionRoot, be.ContentionRoot)
	}
	if !ls.ContentionRoot.Contains(p.NGINX()) || !be.ContentionRoot.Contains(p.JobGroup()) {
		t.Errorf("the processes are not below %s and %s", ls.ContentionRoot, be.ContentionRoot)
	}
}
