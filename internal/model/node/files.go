package node

import (
	"fmt"
	"maps"
	"slices"
)

// A Category says how a knob is accessed. A host reads and writes the knobs of
// different categories with different code.
type Category uint8

// The values of Category.
const (
	CategoryGroup     Category = iota + 1 // files of a cgroup; every managed cgroup has these
	CategoryRun                           // whether the processes of a cgroup run
	CategoryIO                            // files of a cgroup with a line for each block device
	CategoryResctrl                       // the values and the tasks of a control group of resctrl
	CategoryMark                          // the mark of a cgroup on a vendor's kernel
	CategoryThreads                       // attributes of threads, read and written thread by thread
	CategoryScheduler                     // the scheduler of the node
	CategoryOrder                         // an order to the BE scheduler, in its BPF maps
)

// The knobs whose value is a Maximum. Each has the name of its file.
const (
	FilePIDs File = "pids.max"
)

// A LimitFile describes such a knob.
type LimitFile struct {
	File   File
	V2Only bool // cgroup v1 has no such file
	Bytes  bool // the number is of bytes, and the kernel rounds it down to pages
}

// LimitFiles lists them. The real and the simulated node read and write such a knob
// by its name, and it has only one part.
var LimitFiles = []LimitFile{{File: FilePIDs}}

// Of returns the value of the knob with the number n.
func (l LimitFile) Of(n int64) Maximum { return Maximum{Max: n, Bytes: l.Bytes} }

func (l LimitFile) parse(text string) (Value, error) {
	v, err := parseMaximum(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.File, err)
	}
	return l.Of(v), nil
}

// Lacks reports whether no cgroup of this kernel's version has the knob f.
func (k Kernel) Lacks(f File) bool {
	return k.CgroupVersion == 1 && slices.ContainsFunc(LimitFiles, func(l LimitFile) bool { return l.File == f && l.V2Only })
}

// A fileRow holds the category and the parser of one kind of knob.
type fileRow struct {
	file     File
	category Category
	parse    func(text string) (Value, error)
}

// fileRows lists all kinds of knobs, in the order in which they are printed. The
// knobs of threads come from MechanismTable.
var fileRows = slices.Concat([]fileRow{
	{FileCPUWeight, CategoryGroup, parseCPUWeight},
	{FileCPUMax, CategoryGroup, parseCPUMax},
	{FileCPUs, CategoryGroup, parseCPUs},
	{FileMems, CategoryGroup, parseCPUs},
	{FileMemory, CategoryGroup, parseMemory},
}, limitRows(), []fileRow{
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
}, attributeRows(), []fileRow{{FileSlice, CategoryThreads, parseThreads}})

// limitRows returns a row for each limit.
func limitRows() []fileRow {
	var rows []fileRow
	for _, l := range LimitFiles {
		rows = append(rows, fileRow{l.File, CategoryGroup, l.parse})
	}
	return rows
}

// attributeRows returns a row for each attribute of threads that a mechanism sets.
func attributeRows() []fileRow {
	var rows []fileRow
	for i := range MechanismTable {
		if f := MechanismTable[i].Attribute; f != "" {
			rows = append(rows, fileRow{f, CategoryThreads, parseThreads})
		}
	}
	return rows
}

var rowOf = func() map[File]fileRow {
	m := make(map[File]fileRow, len(fileRows))
	for _, r := range fileRows {
		m[r.file] = r
	}
	return m
}()

// FilesOf lists the knobs of the given categories. Without an argument, it lists all knobs.
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
	// AllFiles lists all knobs. A table with File as its key needs an entry for
	// each of them. MissingFiles finds missing entries.
	AllFiles = FilesOf()
	// Files lists the knobs that every managed cgroup has.
	Files = FilesOf(CategoryGroup)
	// IOFiles lists the knobs of block I/O.
	IOFiles = FilesOf(CategoryIO)
)

// Category returns the category of f, or 0 if f is not a knob.
func (f File) Category() Category { return rowOf[f].category }

// OfThreads reports whether f is an attribute of threads. Tenon reads and
// writes such a knob thread by thread.
func (f File) OfThreads() bool { return f.Category() == CategoryThreads }

// ParseValue parses the text that Value.String prints for the knob f.
func ParseValue(f File, text string) (Value, error) {
	r, known := rowOf[f]
	if !known {
		return nil, ErrUnknownFile(f)
	}
	return r.parse(text)
}

// ErrUnknownFile returns the error for a knob that does not exist.
func ErrUnknownFile(f File) error { return fmt.Errorf("unknown knob %q: want one of %v", f, AllFiles) }

// MissingFiles describes the knobs that a table lacks, and the keys of the
// table that are no knobs. It returns "" if there are none.
func MissingFiles[T any](table map[File]T) string {
	missing := slices.DeleteFunc(FilesOf(), func(f File) bool { _, has := table[f]; return has })
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(table)), func(f File) bool { return f.Category() != 0 })
	if len(missing)+len(unknown) == 0 {
		return ""
	}
	return fmt.Sprintf("the table lacks %q and has %q, which are no knobs", missing, unknown)
}
