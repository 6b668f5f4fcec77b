package node

import (
	"fmt"
	"maps"
	"slices"
)

// A Category says how a knob is reached, and so which part of a node reads and
// writes it.
type Category uint8

// The categories.
const (
	CategoryGroup     Category = iota + 1 // files of a cgroup; every managed cgroup has these
	CategoryRun                           // whether the processes of a cgroup run
	CategoryIO                            // lines for block devices, of a cgroup
	CategoryResctrl                       // a control group of resctrl, and who is in it
	CategoryMark                          // the mark of a cgroup on a vendor's kernel
	CategoryThreads                       // read and written thread by thread
	CategoryScheduler                     // the scheduler of the node
	CategoryOrder                         // an order for that scheduler, in its maps
)

// A fileRow is all that this package knows of a kind of knob.
type fileRow struct {
	file     File
	category Category
	parse    func(text string) (Value, error)
}

// fileRows is the table of all knobs, in the order in which they are listed.
var fileRows = []fileRow{
	{FileCPUWeight, CategoryGroup, parseCPUWeight},
	{FileCPUMax, CategoryGroup, parseCPUMax},
	{FileCPUs, CategoryGroup, parseCPUs},
	{FileMems, CategoryGroup, parseCPUs},
	{FileMemory, CategoryGroup, parseMemory},
	{FilePIDs, CategoryGroup, parsePIDs},
	{FileRun, CategoryRun, parseRun},
	{FileIOMax, CategoryIO, parseIOMax},
	{FileIOWeight, CategoryIO, parseIOWeight},
	{FileBFQWeight, CategoryIO, parseIOWeight},
	{FileIOLatency, CategoryIO, parseIOLatency},
	{FileControlGroup, CategoryResctrl, parseControl},
	{FileL3, CategoryResctrl, parseL3},
	{FileMB, CategoryResctrl, parseMB},
	{FileIdentity, CategoryMark, parseIdentity},
	{FileScheduler, CategoryScheduler, parseScheduler},
	{FileSchedulerGroup, CategoryOrder, parseSchedulerGroup},
	{FileSchedulerCap, CategoryOrder, parseSchedulerCap},
	{FilePolicy, CategoryThreads, parseThreads},
	{FileCookie, CategoryThreads, parseThreads},
	{FileSlice, CategoryThreads, parseThreads},
}

var rowOf = func() map[File]fileRow {
	m := make(map[File]fileRow, len(fileRows))
	for _, r := range fileRows {
		m[r.file] = r
	}
	return m
}()

// FilesOf lists the files of the given categories; of all without any.
func FilesOf(categories ...Category) []File {
	var files []File
	for _, r := range fileRows {
		if len(categories) == 0 || slices.Contains(categories, r.category) {
			files = append(files, r.file)
		}
	}
	return files
}

var (
	// AllFiles lists every knob there is. What keeps a table by File has an
	// entry for each; MissingFiles finds those that it forgot.
	AllFiles = FilesOf()
	// Files lists the knobs that every managed cgroup has.
	Files = FilesOf(CategoryGroup)
	// IOFiles lists the knobs of block I/O.
	IOFiles = FilesOf(CategoryIO)
)

// Category says how f is reached; 0 for a file that does not exist.
func (f File) Category() Category { return rowOf[f].category }

// OfThreads reports whether a file stands for something that single threads
// have, and is read and written thread by thread.
func (f File) OfThreads() bool { return f.Category() == CategoryThreads }

// ParseValue reads the value of the given file from the text that its String
// prints.
func ParseValue(f File, text string) (Value, error) {
	r, known := rowOf[f]
	if !known {
		return nil, ErrUnknownFile(f)
	}
	return r.parse(text)
}

// ErrUnknownFile says that there is no such knob.
func ErrUnknownFile(f File) error { return fmt.Errorf("unknown knob %q: want one of %v", f, AllFiles) }

// MissingFiles says how the keys of a table by File differ from AllFiles; it is
// empty if they do not.
func MissingFiles[T any](table map[File]T) string {
	missing := slices.DeleteFunc(FilesOf(), func(f File) bool { _, has := table[f]; return has })
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(table)), func(f File) bool { return f.Category() != 0 })
	if len(missing)+len(unknown) == 0 {
		return ""
	}
	return fmt.Sprintf("the table lacks %q and has %q, which are no knobs", missing, unknown)
}
