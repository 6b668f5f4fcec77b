package resctrl

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/unit"
)

// tree makes a resctrl file system of plain files.
func tree(t *testing.T, files map[string]string) *FS {
	t.Helper()
	f := &FS{Root: t.TempDir()}
	for name, text := range files {
		path := filepath.Join(f.Root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestTheMountIsFoundWithItsOptions has up to two mounts. One that another mount
// hides has no files of resctrl.
func TestTheMountIsFoundWithItsOptions(t *testing.T) {
	shown, hidden := filepath.Join(t.TempDir(), "a b"), t.TempDir()
	if err := errors.Join(os.Mkdir(shown, 0o755), os.WriteFile(filepath.Join(shown, "tasks"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	line := func(root, options string) string {
		return "31 24 0:28 / " + strings.ReplaceAll(root, " ", `\040`) + " rw,relatime - resctrl resctrl " + options + "\n"
	}
	for name, c := range map[string]struct {
		mounts, root string
		options      []string
		err          string
	}{
		"usual":               {line(shown, "rw"), shown, []string{"rw"}, ""},
		"with cdp":            {line(shown, "rw,cdp,mba_MBps"), shown, []string{"rw", "cdp", "mba_MBps"}, ""},
		"the first is hidden": {line(hidden, "rw") + line(shown, "rw,cdp"), shown, []string{"rw", "cdp"}, ""},
		"a damaged line":      {"31 24\n" + line(shown, "rw"), shown, []string{"rw"}, ""},
		"all are hidden":      {line(hidden, "rw"), "", nil, "the resctrl mount at " + hidden},
		"not mounted":         {"24 1 0:22 / /sys/fs/resctrl rw - sysfs sysfs rw\n", "", nil, ErrNotMounted.Error()},
	} {
		proc := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(proc, "self"), 0o755), os.WriteFile(filepath.Join(proc, "self/mountinfo"), []byte(c.mounts), 0o644)); err != nil {
			t.Fatal(err)
		}
		f, err := Find(proc)
		if c.root == "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || errors.Is(err, ErrNotMounted) != (name == "not mounted") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || f.Root != c.root || !cmp.Equal(f.Options, c.options) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

func TestInfoIsOfWhatTheMachineDivides(t *testing.T) {
	l3 := func(dir string) map[string]string {
		return map[string]string{
			dir + "num_closids": "16\n", dir + "cbm_mask": "fffff\n", dir + "min_cbm_bits": "2\n",
			dir + "shareable_bits": "c0000\n", dir + "sparse_masks": "1\n",
		}
	}
	mb := func(linear, least, step string) map[string]string {
		return map[string]string{
			"info/MB/num_closids": "8\n", "info/MB/min_bandwidth": least + "\n",
			"info/MB/bandwidth_gran": step + "\n", "info/MB/delay_linear": linear + "\n",
		}
	}
	x86 := runtime.GOARCH == "amd64"
	cache := Cache{Mask: 0xfffff, Least: 2, Sparse: true, Shareable: 0xc0000}
	for name, c := range map[string]struct {
		files   []map[string]string
		options []string
		want    Info
	}{
		"Intel": {[]map[string]string{l3("info/L3/"), mb("1", "10", "10"),
			{"info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_total_bytes_config\n"}}, nil,
			Info{Groups: 8, L3: cache, MB: Bandwidth{Divisible: true, Least: 10, Step: 10, PerCore: x86}, Events: []string{Occupancy, Traffic}}},
		"AMD":      {[]map[string]string{mb("0", "0", "1")}, nil, Info{Groups: 8, MB: Bandwidth{Divisible: true, Step: 1, Absolute: true}}},
		"mba_MBps": {[]map[string]string{mb("1", "10", "10")}, []string{"mba_MBps"}, Info{Groups: 8, MB: Bandwidth{Divisible: true, Least: 10, Step: 10, Megabytes: true, PerCore: x86}}},
		"limits of cores": {[]map[string]string{mb("1", "10", "10"), {"info/MB/thread_throttle_mode": "max\n"}}, nil,
			Info{Groups: 8, MB: Bandwidth{Divisible: true, Least: 10, Step: 10, PerCore: true}}},
		"limits of threads": {[]map[string]string{mb("1", "10", "10"), {"info/MB/thread_throttle_mode": "per-thread\n"}}, nil,
			Info{Groups: 8, MB: Bandwidth{Divisible: true, Least: 10, Step: 10}}},
		"AMD with the file": {[]map[string]string{mb("0", "0", "1"), {"info/MB/thread_throttle_mode": "undefined\n"}}, nil,
			Info{Groups: 8, MB: Bandwidth{Divisible: true, Step: 1, Absolute: true}}},
		"cache alone": {[]map[string]string{l3("info/L3/")}, nil, Info{Groups: 16, L3: cache}},
		"code and data": {[]map[string]string{l3("info/L3CODE/"), l3("info/L3DATA/")}, nil,
			Info{Groups: 16, L3: Cache{Mask: 0xfffff, Least: 2, Sparse: true, Shareable: 0xc0000, Apart: true}}},
		"monitoring alone": {[]map[string]string{{"info/L3_MON/mon_features": "llc_occupancy\n"}}, nil, Info{Events: []string{Occupancy}}},
	} {
		all := map[string]string{}
		for _, files := range c.files {
			for k, v := range files {
				all[k] = v
			}
		}
		f := tree(t, all)
		f.Options = c.options
		got, err := f.Info()
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestADamagedNumberIsNotZero checks that a number that a kernel lacks counts as
// 0, and that one that cannot be read is an error.
func TestADamagedNumberIsNotZero(t *testing.T) {
	for _, file := range []string{"num_closids", "shareable_bits", "sparse_masks"} {
		files := map[string]string{
			"info/last_cmd_status": "ok\n", "info/L3/num_closids": "16\n", "info/L3/cbm_mask": "fffff\n", "info/L3/min_cbm_bits": "2\n",
		}
		files["info/L3/"+file] = "\x00\n"
		if i, err := tree(t, files).Info(); err == nil || !strings.Contains(err.Error(), "L3/"+file) {
			t.Errorf("%s: %+v, %v", file, i, err)
		}
		delete(files, "info/L3/"+file)
		if i, err := tree(t, files).Info(); err != nil || i.L3.Mask != 0xfffff {
			t.Errorf("without %s: %+v, %v", file, i, err)
		}
	}
}

func TestSchemataReadAsKernelsWriteThem(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Schemata
	}{
		"Linux 6.18":           {"MB:0=4;1=4\nL3:0=7;1=1\n", Schemata{MB: {0: 4, 1: 4}, L3: {0: 7, 1: 1}}},
		"padded":               {"    MB:0= 100;1=  50\n    L3:0=007ff;8=fffff\n", Schemata{MB: {0: 100, 1: 50}, L3: {0: 0x7ff, 8: 0xfffff}}},
		"code and data":        {"L3DATA:0=ff\nL3CODE:0=f\n", Schemata{L3Data: {0: 0xff}, L3Code: {0: 0xf}}},
		"amounts":              {"MB:3=2048\n", Schemata{MB: {3: 2048}}},
		"a pseudo-locked part": {"L3:uninitialized\nMB:0=100\n", Schemata{L3: {}, MB: {0: 100}}},
	} {
		got, err := parseSchemata(c.text)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for name, text := range map[string]string{"no cache": "L3:ff\n", "no resource": ":0=1\n", "words": "MB:0=much\n"} {
		if s, err := parseSchemata(text); err == nil {
			t.Errorf("%s: read as %v", name, s)
		}
	}
}

func TestALineIsWrittenWhole(t *testing.T) {
	f := tree(t, map[string]string{"BE/schemata": ""})
	if err := f.SetSchemata("BE", L3, map[int]uint64{8: 0xff, 0: 0xf}); err != nil {
		t.Fatal(err)
	}
	text, _ := f.read("BE", "schemata")
	if text != "L3:0=f;8=ff\n" {
		t.Errorf("%q", text)
	}
}

func TestARefusalSaysWhatTheKernelSays(t *testing.T) {
	f := tree(t, map[string]string{"info/last_cmd_status": "Mask out of range\n", "BE/schemata/in-the-way": ""})
	err := f.SetSchemata("BE", L3, map[int]uint64{0: 0xffff})
	if err == nil || !strings.Contains(err.Error(), `write "L3:0=ffff"`) || !strings.Contains(err.Error(), "Mask out of range") || !errors.Is(err, syscall.EISDIR) {
		t.Errorf("%v", err)
	}
	if err := f.SetSchemata("LS", L3, map[int]uint64{0: 1}); !errors.Is(err, ErrGone) || strings.Contains(err.Error(), "Mask") {
		t.Errorf("write to a missing group: %v", err)
	}
}

func TestNamesThatAreNoGroupsAreRefused(t *testing.T) {
	f := tree(t, map[string]string{"schemata": "", "info/x/schemata": ""})
	for _, name := range []string{"", ".", "..", "a/b", "../x", "info", "mon_groups", "mon_data", "a\nb"} {
		if err := f.Make(name); err == nil {
			t.Errorf("%q was made", name)
		}
		if _, err := f.Schemata(name); err == nil {
			t.Errorf("%q was read", name)
		}
	}
	if err := f.Remove(Default); err == nil {
		t.Error("the default group was removed")
	}
}

func TestGroupsAreTheFoldersThatHoldNoInfo(t *testing.T) {
	f := tree(t, map[string]string{"info/x": "", "mon_data/x": "", "mon_groups/x": "", "tasks": "", "LS/tasks": "", "BE/tasks": "7\n3\n0\n7\n"})
	groups, err := f.Groups()
	if diff := cmp.Diff([]string{"BE", "LS"}, groups); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if ids, err := f.Tasks("BE"); err != nil || !cmp.Equal(ids, []int{3, 7}) {
		t.Errorf("tasks %v, %v", ids, err)
	}
	if err := f.Make("BE"); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("make BE again: %v", err)
	}
	if err := f.Make("LSR"); err != nil {
		t.Fatal(err)
	}
	was, err := f.Inode("LSR")
	if err != nil || was == 0 {
		t.Errorf("inode %d, %v", was, err)
	}
	if err := errors.Join(f.Remove("LSR"), f.Remove("LSR")); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := f.Inode("LSR"); !errors.Is(err, ErrGone) {
		t.Errorf("inode of a removed group: %v", err)
	}
}

func TestAThreadIsOneWrite(t *testing.T) {
	f := tree(t, map[string]string{"BE/tasks": ""})
	looks := 0
	err := f.Settle("BE", func() ([]int, error) {
		looks++
		return []int{42}, nil
	})
	if text, _ := f.read("BE", "tasks"); err != nil || text != "42\n" || looks != 2 {
		t.Errorf("tasks %q after %d looks, %v", text, looks, err)
	}
}

func TestAListThatNeverSettlesIsGivenUp(t *testing.T) {
	f := tree(t, map[string]string{"BE/tasks": ""})
	tid := 100
	err := f.Settle("BE", func() ([]int, error) {
		tid++
		return []int{tid}, nil
	})
	if err == nil || tid != 100+settleRounds+1 {
		t.Errorf("%d looks, %v", tid-100, err)
	}
}

// TestAStrangerWithAFreedNumberIsSentBack moves thread 43, which is missing
// in the last list, as if the listed thread had ended and another process had
// received its tid.
func TestAStrangerWithAFreedNumberIsSentBack(t *testing.T) {
	f := tree(t, map[string]string{"BE/tasks": "7\n", "tasks": ""})
	looks := 0
	err := f.Settle("BE", func() ([]int, error) {
		if looks++; looks == 1 {
			return []int{43, 42}, nil
		}
		return []int{42}, os.WriteFile(f.path("BE", "tasks"), []byte("7\n42\n43\n"), 0o644)
	})
	text, _ := f.read(Default, "tasks")
	if err != nil || text != "43\n" {
		t.Errorf("default group has %q, want 43 and not 7, which was in the group before; %v", text, err)
	}
}

func TestWhatOneCacheDoesNotCountIsMissing(t *testing.T) {
	f := tree(t, map[string]string{
		"BE/mon_data/mon_L3_00/llc_occupancy": "4096\n", "BE/mon_data/mon_L3_08/llc_occupancy": "8192\n",
		"BE/mon_data/mon_L3_00/mbm_total_bytes": "5\n", "BE/mon_data/mon_L3_08/mbm_total_bytes": "Unavailable\n",
		"BE/mon_data/mon_PERF_PKG_00/core_energy": "1.5\n",
	})
	got, err := f.Monitor("BE", Occupancy, Traffic)
	if diff := cmp.Diff(map[string]unit.Bytes{Occupancy: 12288}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range []string{"L3:0=7;1=7\nMB:0=100\n", "L3:uninitialized", "1\n2\n", "Unavailable", "llc_occupancy\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseSchemata(text); err == nil {
			for resource, by := range s {
				if len(by) == 0 {
					continue
				}
				again, err := parseSchemata(line(resource, by))
				if diff := cmp.Diff(Schemata{resource: by}, again); err != nil || diff != "" {
					t.Errorf("%v\n%s", err, diff)
				}
			}
		}
		if ids, err := parseTasks(text); err == nil {
			for i, id := range ids {
				if id <= 0 || i > 0 && ids[i-1] >= id {
					t.Errorf("tasks %v", ids)
				}
			}
		}
		if n, known := parseCounter(text); known && n < 0 {
			t.Errorf("counter %v", n)
		}
		parseEvents(text)
	})
}
