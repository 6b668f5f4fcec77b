// Package jobfiles reads jobs from files: tables, and the logs of containers.
package jobfiles

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
)

// linksFile is a file in a folder of published logs. It lists the names of the
// links below /var/log/containers, because the names of the logs themselves are
// only the ids of the containers.
const linksFile = "links.txt"

// An Import holds the jobs that were read from files and folders.
type Import struct {
	Jobs []jobs.Job
	// Tables and Logs are the number of files that were read.
	Tables, Logs int
	// Passed has what was passed over.
	Passed map[Reason]Passed

	from []string // the file and the line of each job
}

// A Reason is why something was passed over, or counts for less than it could.
type Reason int

// The reasons, in the order in which they are printed.
const (
	Silent   Reason = iota // a log without a job: it has no line, its link leads nowhere, or it is of a calibration job
	Missing                // links.txt names the log of a job, and there is none: a void job
	Damaged                // a log that cannot be read, or only in part: a void job
	Unnamed                // a log of Docker that no links.txt names
	OtherPod               // a log whose name is not that of a job
	BadName                // a log with the name of a job that cannot exist
	Other                  // a file that is neither a table nor a log
	reasons
)

var reasonTexts = [reasons]string{
	Silent:   "logs that say nothing of a job",
	Missing:  "logs that " + linksFile + " names and that are not there",
	Damaged:  "logs that cannot be read, or only in part",
	Unnamed:  "logs of Docker that no " + linksFile + " names",
	OtherPod: "logs of other pods, whose names are not those of jobs",
	BadName:  "logs with the name of a job that cannot exist",
	Other:    "other files",
}

// Passed is the number of files that were passed over for a reason.
type Passed struct {
	Count int
	First string // the name of the first one, and what is wrong with it
}

func (in *Import) pass(why Reason, name string) {
	if in.Passed == nil {
		in.Passed = map[Reason]Passed{}
	}
	p := in.Passed[why]
	if p.Count++; p.Count == 1 {
		p.First = name
	}
	in.Passed[why] = p
}

// PassedTexts returns a text for each reason why files were passed over.
func (in Import) PassedTexts() []string {
	var texts []string
	for why := range reasons {
		switch p := in.Passed[why]; {
		case p.Count == 0:
		case why == Silent || why == Other:
			texts = append(texts, fmt.Sprintf("%s: %d", reasonTexts[why], p.Count))
		default:
			texts = append(texts, fmt.Sprintf("%s: %d, such as %.300s", reasonTexts[why], p.Count, p.First))
		}
	}
	return texts
}

// Begun returns the begin of the first job whose times are known.
func (in Import) Begun() time.Time {
	var first time.Time
	for _, j := range in.Jobs {
		if (first.IsZero() || j.In.Before(first)) && !(j.Extra.Unread && j.Duration() <= 0) {
			first = j.In
		}
	}
	return first
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
		return in, fmt.Errorf("import %s: no job in it (%s): want a table (*.csv), or a folder with links.txt or with logs named as below /var/log/containers, such as %s",
			strings.Join(paths, ", "), cmp.Or(strings.Join(in.PassedTexts(), "; "), "it is empty"), exampleLink)
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
		if len(j.ContainerID) == 64 && (!twice || j.Extra.Unread) {
			first, twice = containers[j.ContainerID]
			containers[j.ContainerID] = i
		}
		if j.Extra.Unread && j.Duration() <= 0 && !twice {
			continue // without its begin, it may be the second try of a job
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
	host := filepath.Base(filepath.Clean(dir))
	if abs, err := filepath.Abs(dir); err == nil {
		host = filepath.Base(abs)
	}
	names, err := readLinks(filepath.Join(dir, linksFile))
	if err != nil {
		return err
	}
	links := map[string]string{} // container id to the name of its link
	var ids []string
	for _, name := range names {
		if stem, isLog := strings.CutSuffix(name, ".log"); isLog && len(stem) > 64 {
			id := stem[len(stem)-64:]
			if links[id] == "" {
				ids = append(ids, id)
			}
			links[id] = name
		}
	}
	found := map[string]bool{} // ids
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == dir:
			return err
		case err != nil:
			in.pass(Damaged, err.Error())
			return nil
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
		case isRotated(path):
			return nil // read with the log of which it is a part
		}
		name = strings.TrimSuffix(name, gzipped)
		if id, docker := strings.CutSuffix(name, "-json.log"); docker {
			if found[id] = true; links[id] == "" {
				in.pass(Unnamed, path)
				return nil
			}
			name = links[id]
		}
		in.log(path, host, name)
		return nil
	})
	for _, id := range ids {
		if err == nil && !found[id] {
			in.missing(host, links[id])
		}
	}
	return err
}

// missing adds a void job for a log that should be there.
func (in *Import) missing(host, name string) {
	j, is, err := jobs.FromLink(host, name)
	if !is || err != nil {
		return // the log of another pod
	}
	in.pass(Missing, name)
	in.Jobs = append(in.Jobs, j.Without("its log is missing, though "+linksFile+" names it"))
	in.from = append(in.from, name)
}

// log reads the log at path, whose name below /var/log/containers is given. The log may
// be missing, because a node removes a log before the link to it. The log may be empty,
// because its container has not started yet. A log that cannot be read is a void job.
func (in *Import) log(path, host, name string) {
	j, is, err := jobs.FromLink(host, name)
	switch {
	case err != nil:
		in.pass(BadName, err.Error())
		return
	case !is && strings.HasSuffix(name, ".log"):
		in.pass(OtherPod, name)
		return
	case !is:
		in.pass(Other, path)
		return
	}
	l, err := readLog(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, jobs.ErrNoLine), err == nil && l.Calibrates():
		in.pass(Silent, path)
		return
	case err != nil:
		j = j.Without(fmt.Sprintf("its log cannot be read: %.300v", err))
	default:
		read := j.With(l)
		if err := read.Check(); err != nil {
			read = j.Without(fmt.Sprintf("its log cannot be meant: %.300v", err))
		}
		j = read
	}
	if j.Extra.Unread {
		in.pass(Damaged, filepath.Base(path)+": "+j.Extra.Void)
	}
	in.Jobs = append(in.Jobs, j)
	in.from = append(in.from, path)
	in.Logs++
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
