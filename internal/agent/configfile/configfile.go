// Package configfile follows the configuration file of an agent. A single
// goroutine accesses the file system. The path may lead to a network file
// system that hangs, and then even stat(2) does not return.
package configfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"tenon.sh/tenon/internal/config"
)

// patience is the maximum time of a read. A read that takes longer counts as hanging.
const patience = 5 * time.Second

// emptyConfig is the configuration of a cluster node that has no file, because
// the cluster provides all settings.
const emptyConfig = "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\n"

// A File is a configuration file that the agent follows. It is safe for
// concurrent use.
type File struct {
	path string
	load func(string) (config.Config, error)
	stat func(string) (fs.FileInfo, error)
	asks chan bool // true: read the file even if it has not changed
	news chan struct{}

	mu    sync.Mutex
	since time.Time // start of the check in progress; zero: none
	next  *Read     // a read that the loop has not taken yet
	seen  stamp     // state of the file at the last check
}

// A Read is the result of one read of the file.
type Read struct {
	Config config.Config
	Err    error
}

// A stamp is the state of a file. If it differs, the file has changed.
type stamp struct {
	modified time.Time
	size     int64
}

// Open reads the file for the first time, and follows its changes until ctx
// ends. It returns an error if the file is invalid, if the read takes more than
// 5 s, or if ctx ends first. An optional file may be absent.
func Open(ctx context.Context, path string, optional bool) (*File, config.Config, error) {
	f := &File{path: path, load: config.LoadRegular, stat: os.Stat}
	first, err := f.open(ctx, patience)
	if optional && errors.Is(err, fs.ErrNotExist) {
		first, _ = config.Parse([]byte(emptyConfig)) // emptyConfig has no faults
		first.Notices, err = nil, nil
	}
	return f, first, err
}

func (f *File) open(ctx context.Context, patience time.Duration) (config.Config, error) {
	f.asks, f.news = make(chan bool, 1), make(chan struct{}, 1)
	read := make(chan struct{})
	go f.run(ctx, read)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-read:
		<-f.news
		r := f.Take()
		return r.Config, r.Err
	case <-ctx.Done():
		return config.Config{}, ctx.Err()
	case <-late.C:
		return config.Config{}, fmt.Errorf("read config %s: no answer from its file system for %v", f.path, patience)
	}
}

// run reads the file once, and then closes the channel read. After that, it
// checks the file whenever Look or Reload requests this. If run hangs in a
// system call, it does not return at the end of ctx.
func (f *File) run(ctx context.Context, read chan<- struct{}) {
	f.look(true)
	close(read)
	for {
		select {
		case <-ctx.Done():
			return
		case again := <-f.asks:
			f.look(again)
		}
	}
}

// look reads the file if it has changed, or if again is true.
func (f *File) look(again bool) {
	f.mu.Lock()
	f.since = time.Now()
	seen := f.seen
	f.mu.Unlock()
	var now stamp
	if info, err := f.stat(f.path); err == nil {
		now = stamp{info.ModTime(), info.Size()}
	}
	var next *Read
	if again || now != seen {
		next = new(Read)
		next.Config, next.Err = f.load(f.path)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since, f.seen = time.Time{}, now
	if next == nil {
		return
	}
	f.next = next
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// Look requests a check of the file. If the file has changed, it is read. Look
// does not wait.
func (f *File) Look() { f.ask(false) }

// Reload requests a read of the file, even if the file seems unchanged. It does
// not wait.
func (f *File) Reload() { f.ask(true) }

func (f *File) ask(again bool) {
	for {
		select {
		case f.asks <- again:
			return
		default:
		}
		select {
		case asked := <-f.asks: // an earlier request has not begun: join the two
			again = again || asked
		default:
		}
	}
}

// News returns a channel that gets a value when Take has a new result.
func (f *File) News() <-chan struct{} { return f.news }

// Take returns the result of the last read, but only once; then it returns nil.
func (f *File) Take() *Read {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.next
	f.next = nil
	return r
}

// Hangs describes a check of the file that hangs. It returns "" if none does.
func (f *File) Hangs() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() || time.Since(f.since) < patience {
		return ""
	}
	return fmt.Sprintf("the configuration %s cannot be read: its file system has not answered since %s; the last valid configuration holds",
		f.path, f.since.Format(time.TimeOnly))
}
