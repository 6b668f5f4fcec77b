package concurrency

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/jobs"
)

// linksFile is a file in a folder of published logs. It lists the names of the
// links below /var/log/containers, because the names of the logs themselves are
// only the ids of the containers.
const linksFile = "links.txt"

// An Import holds the jobs that were read from files and folders.
type Import struct {
	Jobs []jobs.Job
	// Tables and Logs are the number of files that were read. Others is the
	// number of files that are neither a table nor the log of a job. Silent is
	// the number of logs that have no job: logs without a line, links to logs
	// that were removed, and logs of the lab's calibration jobs.
	Tables, Logs, Others, Silent int
}

// Blocks returns how often each cell ran: the number of blocks that the jobs
// name. Published tables name none, and contain each cell once.
func (in Import) Blocks() int {
	named := map[int]bool{}
	for _, j := range in.Jobs {
		if j.Extra.Block > 0 {
			named[j.Extra.Block] = true
		}
	}
	return max(len(named), 1)
}

// ReadPaths reads jobs from tables (*.csv), and from folders with the logs of
// containers: a node's /var/log/containers, or a published folder with links.txt
// and the logs of Docker. The name of the folder is the name of the node.
// Errors name the file.
func ReadPaths(paths []string) (Import, error) {
	var in Import
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return in, fmt.Errorf("import: %w", err)
		}
		switch {
		case info.IsDir():
			err = in.folder(path)
		case info.Mode().IsRegular():
			err = in.table(path)
		default:
			err = errors.New("it is neither a file nor a folder")
		}
		if err != nil {
			return in, fmt.Errorf("import %s: %w", path, err)
		}
	}
	if len(in.Jobs) == 0 {
		return in, fmt.Errorf("import %s: no job in it: want a table (*.csv), or a folder with links.txt or with logs named as below /var/log/containers", strings.Join(paths, ", "))
	}
	return in, nil
}

func (in *Import) table(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := jobs.ReadTable(f)
	in.Jobs = append(in.Jobs, all...)
	in.Tables++
	return err
}

func (in *Import) folder(dir string) error {
	links := map[string]string{} // container id to the name of its link
	host := filepath.Base(filepath.Clean(dir))
	if abs, err := filepath.Abs(dir); err == nil {
		host = filepath.Base(abs)
	}
	names, err := readLinks(filepath.Join(dir, linksFile))
	if err != nil {
		return err
	}
	for _, name := range names {
		if stem, isLog := strings.CutSuffix(name, ".log"); isLog && len(stem) > 64 {
			links[stem[len(stem)-64:]] = name
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case d.IsDir() && path != dir && hasLinks(path):
			if err := in.folder(path); err != nil {
				return err
			}
			return fs.SkipDir
		case d.IsDir(), name == linksFile:
			return nil
		case strings.HasSuffix(name, ".csv"):
			return in.table(path)
		case strings.HasSuffix(name, "-json.log"):
			name = links[strings.TrimSuffix(name, "-json.log")]
		}
		j, is, err := jobs.FromLink(host, name)
		if err != nil {
			return err
		}
		if !is {
			in.Others++
			return nil
		}
		return in.log(path, j)
	})
}

// log reads one log. The log may be missing, because a node removes a log
// before the link to it below /var/log/containers. It may be empty, because its
// container still waits.
func (in *Import) log(path string, j jobs.Job) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		in.Silent++
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is not a regular file", path))
	}
	l, err := jobs.ReadLog(f)
	switch {
	case errors.Is(err, jobs.ErrNoLine), err == nil && l.Calibrates():
		in.Silent++
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	in.Jobs = append(in.Jobs, j.With(l))
	in.Logs++
	return nil
}

func hasLinks(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, linksFile))
	return err == nil
}

// readLinks returns the lines of links.txt, or none if there is no such file.
func readLinks(name string) ([]string, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []string
	in := bufio.NewScanner(io.LimitReader(f, 64<<20))
	for in.Scan() {
		if line := strings.TrimSpace(in.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	return slices.Clip(lines), in.Err()
}
