package vm

import (
	"bufio"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed init.sh
var initScript []byte

// An Image is the guest's root file system, which is in memory. busybox and the
// files for the boot are added automatically.
type Image struct {
	files map[string]file // by absolute path in the guest
}

// A file is a directory, or a file whose content is in memory or on the host.
type file struct {
	mode    fs.FileMode
	host    string // path of the content on the host; empty: use content
	content []byte
}

// Dir adds a directory. All methods also add parent directories.
func (i *Image) Dir(guest string) { i.put(guest, file{mode: fs.ModeDir | 0o755}) }

// Text adds a small file with the given content.
func (i *Image) Text(guest, content string) {
	i.put(guest, file{mode: 0o644, content: []byte(content)})
}

// File adds a copy of a file of the host. It follows symbolic links.
func (i *Image) File(guest, host string) error {
	info, err := os.Stat(host)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("pack %s: not a regular file", host)
	}
	i.put(guest, file{mode: info.Mode().Perm(), host: host})
	return nil
}

// Tree adds the regular files below a directory of the host.
func (i *Image) Tree(guest, host string) error {
	return filepath.WalkDir(host, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		below, err := filepath.Rel(host, name)
		if err != nil {
			return err
		}
		return i.File(path.Join(guest, below), name)
	})
}

// Program adds an executable of the host and its shared libraries, at the paths
// where the loader looks for them.
func (i *Image) Program(guest, host string) error {
	if err := i.File(guest, host); err != nil {
		return err
	}
	libraries, err := sharedLibraries(host)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		if err := i.File(library, library); err != nil {
			return err
		}
	}
	// The loader's cache has the paths of libraries outside the loader's own
	// directories. These paths are the same in the guest.
	const loaderCache = "/etc/ld.so.cache"
	if _, err := os.Stat(loaderCache); len(libraries) > 0 && err == nil {
		return i.File(loaderCache, loaderCache)
	}
	return nil
}

// put adds a file and its parent directories.
func (i *Image) put(guest string, f file) {
	if i.files == nil {
		i.files = make(map[string]file)
	}
	guest = path.Clean("/" + guest)
	i.files[guest] = f
	if above := path.Dir(guest); above != "/" {
		if _, ok := i.files[above]; !ok {
			i.Dir(above)
		}
	}
}

// write packs the image together with busybox, init and the commands. The
// kernel unpacks the file as its root file system.
func (i *Image) write(name string, commands []Command) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	var full Image
	if err := full.Program("/bin/busybox", busybox); err != nil {
		return err
	}
	full.put("/init", file{mode: 0o755, content: initScript})
	full.Text("/commands.sh", script(commands))
	full.Text("/etc/hosts", "127.0.0.1 localhost\n")
	full.Text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\nnobody:x:65534:65534::/:/bin/false\n")
	full.Text("/etc/group", "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n")
	for guest, f := range i.files {
		full.put(guest, f)
	}

	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer out.Close()
	buffered := bufio.NewWriterSize(out, 1<<20)
	archive := cpioWriter{w: buffered}
	for _, guest := range slices.Sorted(maps.Keys(full.files)) {
		if err := archive.add(strings.TrimPrefix(guest, "/"), full.files[guest]); err != nil {
			return fmt.Errorf("%s: %w", guest, err)
		}
	}
	return errors.Join(archive.end(), buffered.Flush(), out.Close())
}

// script returns the part of init that runs the commands. It prints a marker
// before each command, and a marker with the exit status after it.
func script(commands []Command) string {
	var s strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&s, "echo '%s%s'\n(\n", markBegin, c.Name)
		if c.Dir != "" {
			fmt.Fprintf(&s, "cd %s || exit\n", quote(c.Dir))
		}
		for _, setting := range c.Env {
			fmt.Fprintf(&s, "export %s\n", quote(setting))
		}
		s.WriteString("exec")
		if c.Timeout > 0 {
			fmt.Fprintf(&s, " timeout -k 5 %.0f", max(1, c.Timeout.Seconds()))
		}
		for _, arg := range c.Args {
			s.WriteString(" " + quote(arg))
		}
		fmt.Fprintf(&s, "\n) </dev/null 2>&1\nstatus=$?; echo; echo \"%s$status\"\n", markEnd)
	}
	return s.String()
}

// quote quotes a text as one word of the shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// sharedLibraries returns the paths of the shared libraries of a program of the
// host, and of the loader. A static program has none.
func sharedLibraries(program string) ([]string, error) {
	binary, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("read program %s: %w", program, err)
	}
	defer binary.Close()
	if !slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil, nil
	}
	listing, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}
	return parseLDD(string(listing))
}

// parseLDD parses the output of ldd. A library is "libc.so.6 => /lib/libc.so.6
// (0x7f…)", the loader is "/lib64/ld-linux-x86-64.so.2 (0x7f…)", and a library
// without a file is "linux-vdso.so.1 (0x7f…)".
func parseLDD(listing string) ([]string, error) {
	var paths []string
	for line := range strings.Lines(listing) {
		fields := strings.Fields(line)
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("shared library missing: %s", strings.TrimSpace(line))
		}
		for _, field := range fields {
			if strings.HasPrefix(field, "/") {
				paths = append(paths, field)
			}
		}
	}
	return paths, nil
}
