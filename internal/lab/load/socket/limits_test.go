package socket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHintsShowThePresentValues(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"net/ipv4/tcp_tw_reuse": "2\n", "net/ipv4/ip_local_port_range": "32768\t60999\n", "net/core/somaxconn": "128\n",
	} {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hints := strings.Join(readLimits(root, 0).Hints(), "\n")
	for _, want := range []string{
		"net.ipv4.tcp_tw_reuse = 2 (is on only for loopback)", "set it back to 2", "ip_local_port_range = 32768 60999", "somaxconn = 128", "(hard limit",
	} {
		if !strings.Contains(hints, want) {
			t.Errorf("no %q in:\n%s", want, hints)
		}
	}
	if hints := strings.Join(readLimits(filepath.Join(root, "absent"), 0).Hints(), "\n"); !strings.Contains(hints, "tcp_tw_reuse = ? (could not be read)") {
		t.Errorf("unreadable values: %s", hints)
	}
}

// TestALimitThatSufficesIsNotRaised asks for a larger somaxconn only if it is smaller
// than the default of present kernels; above it, the backlog of the server decides.
func TestALimitThatSufficesIsNotRaised(t *testing.T) {
	for limit, raise := range map[string]bool{"128": true, "4095": true, "4096": false, "65535": false, "?": true} {
		hints := strings.Join(Limits{Somaxconn: limit}.Hints(), "\n")
		if strings.Contains(hints, "sysctl -w net.core.somaxconn=4096") != raise || !strings.Contains(hints, "backlog=4096") {
			t.Errorf("somaxconn %s: %s", limit, hints)
		}
	}
}
