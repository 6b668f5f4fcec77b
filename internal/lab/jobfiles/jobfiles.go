// Package jobfiles reads jobs from files: tables, and the logs of containers.
package jobfiles

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

	from []string // the file and the line of each job
}

// Blocks returns how often each cell ran: the number of different blocks in the
// jobs. Published tables have no blocks, and contain each cell once.
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
		return in, fmt.Errorf("import %s: no job in it (logs that say nothing of a job: %d; other files: %d): want a table (*.csv), or a folder with links.txt or with logs named as below /var/log/containers, such as %s",
			strings.Join(paths, ", "), in.Silent, in.Others, exampleLink)
	}
	if err := in.refuseTwice(); err != nil {
		return in, err
	}
	jobs.VoidMixed(in.Jobs)
	return in, nil
}

// exampleLink is the name of the log of a job. It ends with the digits of the
// container's id.
const exampleLink = "aws-4-2.5-1gi-0-x1y2z_default_transcoder-0-CONTAINERID.log (64 hexadecimal digits)"

// refuseTwice returns an error if a job was read twice: it would count as two
// jobs that ran beside each other. The container's id identifies a job, because
// a container runs one job. Without an id, the cell, the number, the node and
// the begin identify it. Two jobs of a wave have different numbers.
func (in *Import) refuseTwice() error {
	type job struct {
		host              string
		cell              jobs.Cell
		block, run, index int
		at                int64
	}
	containers, known := map[string]int{}, map[job]int{}
	for i, j := range in.Jobs {
		k := job{j.Host, j.Cell(), j.Extra.Block, j.Extra.Run, j.Index, j.In.UnixNano()}
		first, twice := known[k]
		if len(j.ContainerID) == 64 && !twice {
			first, twice = containers[j.ContainerID]
			containers[j.ContainerID] = i
		}
		if twice {
			return fmt.Errorf("import: %s and %s are the same job (%s, Concurrency %d, CPU %g, JobID %d on %s, begun at %d): give each job once", in.from[first], in.from[i], j.Type, j.Concurrency, j.CPU.Cores(), j.Index, j.Host, j.In.Unix())
		}
		known[k] = i
	}
	return nil
}

func (in *Import) table(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // to open a pipe would wait for a writer
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := jobs.ReadRows(f)
	for _, row := range rows {
		in.Jobs = append(in.Jobs, row.Job)
		in.from = append(in.from, fmt.Sprintf("%s line %d", path, row.Line))
	}
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
			if err := in.table(path); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
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
// before the link to it below /var/log/containers. The log may be empty,
// because its container has not started yet.
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
	if l.Last.Before(l.First) {
		return fmt.Errorf("%s: line %d, the last one, is %v older than the first", path, l.Lines, l.First.Sub(l.Last))
	}
	j = j.With(l)
	if err := j.Check(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	in.Jobs = append(in.Jobs, j)
	in.from = append(in.from, path)
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
