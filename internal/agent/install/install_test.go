package install

import (
	"strings"
	"testing"
)

// TestUnitsAreSane checks the units for errors that systemd logs but otherwise ignores.
func TestUnitsAreSane(t *testing.T) {
	for _, u := range units {
		text, err := unitFiles.ReadFile("systemd/" + u)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		section := ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "["):
				section = line
			default:
				key, value, found := strings.Cut(line, "=")
				if !found || value == "" || section == "" {
					t.Errorf("%s: %q", u, line)
				}
				if seen[section+key] {
					t.Errorf("%s: %s occurs twice in %s", u, key, section)
				}
				seen[section+key] = true
			}
		}
		for _, need := range []string{"[Service]ExecStart", "[Service]Restart", "[Service]RuntimeDirectoryPreserve", "[Install]WantedBy", "[Service]OOMScoreAdjust"} {
			if !seen[need] {
				t.Errorf("%s has no %s", u, need)
			}
		}
	}
}
