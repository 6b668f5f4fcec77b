package configfile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/config"
)

// TestConfigurationThatIsNoFileIsRefused uses a pipe, a device and a directory
// as the configuration file.
func TestConfigurationThatIsNoFileIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "tenon.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", filepath.Dir(pipe)} {
		if _, _, err := Open(t.Context(), path, true); err == nil || !strings.Contains(err.Error(), path+" is no regular file") {
			t.Errorf("error %v, want that %s is no regular file", err, path)
		}
	}
}

// TestConfigurationWithoutEndIsRefused uses a sparse file of 1 TiB.
func TestConfigurationWithoutEndIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenon.yaml")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)); err != nil {
		t.Skip(err)
	}
	if _, _, err := Open(t.Context(), path, false); err == nil {
		t.Error("a file of 1 TiB is taken")
	}
}

// A share is a file system that can hang.
type share struct {
	hangs    chan struct{} // nil: the file does not hang; closed: it answers again
	modified time.Time
}

func (s *share) Stat(string) (fs.FileInfo, error) {
	if s.hangs != nil {
		<-s.hangs
	}
	return info{s.modified}, nil
}

func (s *share) Load(string) (config.Config, error) {
	if s.hangs != nil {
		<-s.hangs
	}
	return config.Config{Period: time.Duration(s.modified.Unix())}, nil
}

type info struct{ modified time.Time }

func (info) Name() string         { return "" }
func (info) Size() int64          { return 1 }
func (info) Mode() fs.FileMode    { return 0 }
func (i info) ModTime() time.Time { return i.modified }
func (info) IsDir() bool          { return false }
func (info) Sys() any             { return nil }

// TestAHangingFileSystemDoesNotBlockTheAgent makes the file system hang. The
// last configuration must stay valid, the trouble must be reported, and the
// file must be read when its file system answers again.
func TestAHangingFileSystemDoesNotBlockTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &share{modified: time.Unix(1, 0)}
		f := &File{path: "/share/tenon.yaml", load: s.Load, stat: s.Stat}
		if c, err := f.open(ctx, patience); err != nil || c.Period != 1 {
			t.Fatal(c.Period, err)
		}
		look := func() *Read {
			f.Look()
			synctest.Wait()
			return f.Take()
		}
		if r := look(); r != nil {
			t.Error("a file that has not changed was read again")
		}
		if f.Reload(); true {
			synctest.Wait()
		}
		if r := f.Take(); r == nil {
			t.Error("the file was not read again on request")
		}
		s.modified, s.hangs = time.Unix(2, 0), make(chan struct{})
		for range 10 {
			if r := look(); r != nil || f.Hangs() != "" {
				t.Errorf("%+v, %q", r, f.Hangs())
			}
		}
		time.Sleep(patience + time.Second)
		if f.Reload(); !strings.Contains(f.Hangs(), "/share/tenon.yaml cannot be read") {
			t.Errorf("%q", f.Hangs())
		}
		close(s.hangs)
		synctest.Wait()
		if r := f.Take(); r == nil || r.Config.Period != 2 || f.Hangs() != "" {
			t.Errorf("%+v, %q", r, f.Hangs())
		}
		cancel()
		synctest.Wait()
	})
}

func TestAStartDoesNotWaitForAFileSystemThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &share{hangs: make(chan struct{})}
		f := &File{path: "/share/tenon.yaml", load: s.Load, stat: s.Stat}
		if _, err := f.open(t.Context(), patience); err == nil || !strings.Contains(err.Error(), "no answer from its file system") {
			t.Error(err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		g := &File{path: f.path, load: s.Load, stat: s.Stat}
		if _, err := g.open(stopped, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("a start that was stopped: %v", err)
		}
		close(s.hangs)
	})
}
