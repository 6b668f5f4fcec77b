package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/valuetext"
)

// The names of the files of a lease.
const (
	leaseFile    = "lease"
	leaseLock    = "lease.lock"
	watchdogLock = "watchdog.lock"
)

// bootWidth is the length of a boot id, a UUID.
const bootWidth = 36

// A head is the first line of the lease file. Its width is fixed, so that a renewal
// can overwrite it in place. The other lines are the bounds as JSON, one per line.
type head struct {
	boot      string
	holder    Holder
	deadline  time.Duration // see monotonic
	announced bool
	body      sum // of the lines that follow the head
}

// A sum is the length and the check sum of a text.
type sum struct {
	length int64
	crc    uint32
}

func sumOf(text []byte) sum { return sum{int64(len(text)), crc32.ChecksumIEEE(text)} }

// headSize is the length of a head in bytes.
var headSize = len(head{}.append(nil))

// append appends the line to b. The line ends with its check sum.
func (h head) append(b []byte) []byte {
	announced := 0
	if h.announced {
		announced = 1
	}
	start := len(b)
	b = fmt.Appendf(b, "tenon lease 1 boot %-*s pid %010d start %020d deadline %020d announced %d body %010d %08x",
		bootWidth, h.boot, h.holder.PID, h.holder.Start, int64(h.deadline), announced, h.body.length, h.body.crc)
	return fmt.Appendf(b, " sum %08x\n", crc32.ChecksumIEEE(b[start:]))
}

// errDamaged means that a text is not a lease, or not a complete one.
var errDamaged = errors.New("torn or not a lease")

func parseHead(line []byte) (head, error) {
	f := strings.Fields(string(line))
	if len(f) != 18 {
		return head{}, errDamaged
	}
	number := func(s string, base int) int64 {
		n, _ := strconv.ParseInt(s, base, 64) //nolint:errcheck // the line that the numbers make must be the same
		return n
	}
	h := head{
		boot:      f[4],
		holder:    Holder{PID: int(number(f[6], 10)), Start: number(f[8], 10)},
		deadline:  time.Duration(number(f[10], 10)),
		announced: f[12] == "1",
		body:      sum{number(f[14], 10), uint32(number(f[15], 16))},
	}
	// The parsed values must give the same line again. This checks the check
	// sum, and the parts of the line that were not parsed.
	if !bytes.Equal(h.append(nil), line) {
		return head{}, errDamaged
	}
	return h, nil
}

// A boundLine is the JSON form of a Bound in the file.
type boundLine struct {
	node.Knob
	Inode  uint64 `json:"inode"`
	Value  string `json:"value"`
	Reason string `json:"reason,omitempty"`
}

func encode(bounds []Bound) ([]byte, error) {
	var text []byte
	for _, b := range bounds {
		if b.Value == nil {
			return nil, fmt.Errorf("bound on %v: no value", b.Knob)
		}
		k := b.Knob
		k.Cgroup = valuetext.QuotePath(k.Cgroup)
		line, err := json.Marshal(boundLine{Knob: k, Inode: b.Inode, Value: b.Value.String(), Reason: b.Reason})
		if err != nil {
			return nil, fmt.Errorf("bound on %v: %w", b.Knob, err)
		}
		text = append(append(text, line...), '\n')
	}
	return text, nil
}

func parseBody(text []byte, want sum) ([]Bound, error) {
	if sumOf(text) != want {
		return nil, errDamaged
	}
	var bounds []Bound
	for line := range bytes.Lines(text) {
		var l boundLine
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("bound %q: %w", line, err)
		}
		l.Cgroup = valuetext.UnquotePath(l.Cgroup)
		v, err := node.ParseValue(l.File, l.Value)
		if err != nil {
			return nil, fmt.Errorf("bound on %v: %w", l.Knob, err)
		}
		bounds = append(bounds, Bound{Knob: l.Knob, Inode: l.Inode, Value: v, Reason: l.Reason})
	}
	return bounds, nil
}

// content is a decoded lease file.
type content struct {
	head   head
	bounds []Bound
}

// read reads the lease in dir, or returns fs.ErrNotExist if there is none. If
// the bounds are the same as in last, it reads only the first line of the file.
func read(dir string, last content) (content, error) {
	path := filepath.Join(dir, leaseFile)
	f, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return content{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(f) }()
	c, err := readFrom(descriptor(f), last)
	if err != nil {
		return content{}, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

// A descriptor reads a file with one system call. os.File would make six more,
// which matters because reading the lease is most of the work of a watchdog.
type descriptor int

// ReadAt makes one read. If it fills only a part of b, it also returns io.EOF.
func (d descriptor) ReadAt(b []byte, at int64) (int, error) {
	n, err := unix.Pread(int(d), b, at)
	if err != nil {
		return 0, err
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// attempts is the number of times that readFrom tries to read a head. A head
// that is just being written is complete a moment later.
const attempts = 3

// readFrom reads a lease. If the head's check sum of the bounds is the same as
// in last, readFrom takes the bounds from last.
func readFrom(r io.ReaderAt, last content) (content, error) {
	line := make([]byte, headSize)
	var h head
	var err error
	for range attempts {
		if _, err = r.ReadAt(line, 0); err != nil && !errors.Is(err, io.EOF) {
			return content{}, err
		}
		if h, err = parseHead(line); err == nil {
			break
		}
	}
	if err != nil {
		return content{}, err
	}
	if h.body == last.head.body {
		return content{h, last.bounds}, nil
	}
	// Read one byte more than expected, to notice a text that is too long.
	text, err := io.ReadAll(io.NewSectionReader(r, int64(headSize), h.body.length+1))
	if err != nil {
		return content{}, err
	}
	bounds, err := parseBody(text, h.body)
	return content{h, bounds}, err
}
