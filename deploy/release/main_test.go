package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAPlatformHasAProcessor lists a platform without a processor. The error names the
// flag before anything is built or removed.
func TestAPlatformHasAProcessor(t *testing.T) {
	for flag, platform := range map[string]string{"machine": "linux", "plugin": "/amd64"} {
		out := filepath.Join(t.TempDir(), "release")
		args := []string{"--version=v1.2.3", "--out=" + out, "--images=", "--machine=", "--plugin=", "--" + flag + "=linux/amd64," + platform}
		err := run(t.Context(), args)
		if err == nil || !strings.HasPrefix(err.Error(), `--`+flag+`: "`+platform+`": want SYSTEM/PROCESSOR`) {
			t.Errorf("%v: %v", args, err)
		}
		if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%v: the folder of the release was made: %v", args, err)
		}
	}
}
