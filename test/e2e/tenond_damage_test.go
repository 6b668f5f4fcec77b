package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTenondOutlivesItsStateDirectory removes the directory with the journal
// and the lease, as another program might. Tenon must write both again from
// memory. Then it must bound new work, and the watchdog must guard it. After a
// kill -9, a restore must restore everything.
func TestTenondOutlivesItsStateDirectory(t *testing.T) {
	s := plantSite(t, limitedJobs)
	d := s.tenond()
	s.awaitRoom()
	first := s.awaitWatchdog()
	// The directory is renamed before it is removed. Otherwise tenond could
	// create a file while the directory is being emptied, and then it could not
	// be removed.
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Rename(s.state, gone); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	d.await("wrote the journal again", 1)
	s.run("batch/late", "sleep", "600")
	eventually(t, "the new job has its limit", func() bool {
		m, err := s.tree.ReadMemory(string(s.path("batch/late")))
		return err == nil && m.Max == 64<<20
	})
	eventually(t, "the watchdog of the removed lease has ended", func() bool { return syscall.Kill(first, 0) != nil })
	s.awaitWatchdog()
	d.signal(syscall.SIGKILL)
	<-d.end
	s.restore()
}

// TestRestoreSaysThatTheJournalWasDamaged checks that tenon restore reports an
// emptied journal. It must not conclude that Tenon changed nothing on the node.
func TestRestoreSaysThatTheJournalWasDamaged(t *testing.T) {
	s := plantSite(t, limitedJobs)
	d := s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	d.signal(syscall.SIGKILL)
	<-d.end
	files, err := filepath.Glob(filepath.Join(s.state, "journal-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.Truncate(files[0], 0); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(filepath.Join(s.bin, "tenon"), "--state-dir", s.state, "restore").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "damaged") || strings.Contains(string(said), "Nothing to restore") {
		t.Errorf("restore with an empty journal: %v\n%s", err, said)
	}
	s.isBack(said) // notes at the cgroups had the values from before
}
