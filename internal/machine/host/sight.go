package host

import (
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// A sight is the knob cache of a resident host. Reading all knobs of a hundred
// workloads in every tick would be most of the agent's cost.
type sight struct {
	mu     sync.Mutex
	files  []node.File       // the knobs that every cached cgroup shows
	runs   bool              // best-effort workloads show whether they run
	groups []node.CgroupPath // the cached cgroups
	extra  []node.Knob       // further cached knobs
	inodes map[node.CgroupPath]uint64
	known  map[node.Knob]node.Value // nil: could not be read
	order  []node.Knob              // the cached knobs
	stale  bool                     // cgroups may have been made again

	touched        []node.Knob  // knobs that Tenon has changed
	ours, others   []node.Knob  // of order: Tenon's, and the rest
	verify, glance reread.Cycle // of ours, and of others

	inner      []node.CgroupPath // inside best-effort workloads
	innerStale bool

	ending map[node.Knob]node.Run // cgroups that were asked to end, or killed
}

func newSight() *sight {
	return &sight{files: node.Files, runs: true, inodes: map[node.CgroupPath]uint64{}, known: map[node.Knob]node.Value{}, innerStale: true}
}

// look returns the knobs of cgroups, sorted, and those that Tenon changed: from
// the cache, except for new ones and those due for a read.
func (s *sight) look(at time.Time, groups []node.CgroupPath, touched []node.Knob, h *Host) map[node.Knob]node.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(touched, node.Knob.Compare)
	touched = slices.Compact(touched)
	var extra []node.Knob
	for _, k := range touched {
		if !slices.Contains(s.files, k.File) {
			extra = append(extra, k)
		}
	}
	s.dropEnding()
	turned := s.stale || !slices.Equal(groups, s.groups) || !slices.Equal(extra, s.extra)
	if turned {
		s.turnTo(groups, extra, h)
	}
	if turned || !slices.Equal(touched, s.touched) {
		s.divide(touched)
	}
	for _, k := range s.order {
		if _, known := s.known[k]; !known {
			s.known[k] = h.knobOrNil(k)
		}
	}
	for i := range s.verify.Due(at, len(s.ours), reread.Changed) {
		s.known[s.ours[i]] = h.knobOrNil(s.ours[i])
	}
	for i := range s.glance.Due(at, len(s.others), reread.Unchanged) {
		s.known[s.others[i]] = h.knobOrNil(s.others[i])
	}
	now := make(map[node.Knob]node.Value, len(s.known))
	for k, v := range s.known {
		if v != nil {
			now[k] = v
		}
	}
	return now
}

// divide separates the cached knobs that Tenon has changed from the others.
func (s *sight) divide(touched []node.Knob) {
	s.touched, s.ours, s.others = touched, nil, nil
	for _, k := range s.order {
		if _, changed := slices.BinarySearchFunc(touched, k, node.Knob.Compare); changed {
			s.ours = append(s.ours, k)
		} else {
			s.others = append(s.others, k)
		}
	}
}

// turnTo drops cgroups that are no longer shown, or were made again.
func (s *sight) turnTo(groups []node.CgroupPath, extra []node.Knob, h *Host) {
	known, inodes := s.known, s.inodes
	s.known, s.inodes = make(map[node.Knob]node.Value, len(known)), make(map[node.CgroupPath]uint64, len(groups))
	s.order = s.order[:0]
	for _, p := range groups {
		inode, err := h.tree.Inode(string(p))
		if err == nil {
			s.inodes[p] = inode
		}
		same := err == nil && inodes[p] == inode
		delete(inodes, p)
		if !same {
			h.tree.Close(string(p))
		}
		keep := func(k node.Knob) {
			s.order = append(s.order, k)
			if v, had := known[k]; had && same {
				s.known[k] = v
			}
		}
		for _, f := range s.files {
			keep(node.Knob{Cgroup: p, File: f})
		}
		first, _ := slices.BinarySearchFunc(extra, node.Knob{Cgroup: p}, node.Knob.Compare)
		for _, k := range extra[first:] {
			if k.Cgroup != p {
				break
			}
			keep(k)
		}
	}
	for p := range inodes {
		h.tree.Close(string(p))
	}
	s.groups, s.extra, s.stale = groups, extra, false
}

// saw stores the value read after a write; after an error the knob is read
// again.
func (s *sight) saw(k node.Knob, v node.Value, err error) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, inSight := s.known[k]; !inSight {
		return
	}
	if err != nil {
		delete(s.known, k)
		return
	}
	s.known[k] = v
}

// anew makes the next look read a knob.
func (s *sight) anew(k node.Knob) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, k)
}

// forget clears the cache.
func (s *sight) forget() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}

func (s *sight) inode(p node.CgroupPath) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inode, known := s.inodes[p]
	return inode, known
}

// show sets the files that every cached cgroup shows.
func (s *sight) show(files []node.File) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := slices.Contains(files, node.FileRun)
	files = slices.DeleteFunc(slices.Clone(files), func(f node.File) bool { return f == node.FileRun })
	if s.runs != runs || !slices.Equal(s.files, files) {
		s.files, s.runs, s.stale = files, runs, true
	}
}

// expire makes the next look compare the inode of every cgroup.
func (s *sight) expire() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale, s.innerStale = true, true
}

// inside returns the last result of list, or a new one after expire.
func (s *sight) inside(list func() []node.CgroupPath) []node.CgroupPath {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.innerStale {
		s.inner, s.innerStale = list(), false
	}
	return s.inner
}

// knobOrNil reads a knob; nil if it cannot be read.
func (h *Host) knobOrNil(k node.Knob) node.Value {
	if k.File == node.FileRun {
		return h.runs.shown(string(k.Cgroup))
	}
	v, err := h.changes.Read(k)
	if err != nil {
		return nil
	}
	return v
}
