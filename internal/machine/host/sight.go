package host

import (
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// verifyWithin is how long the value of a knob that Tenon has changed is
	// believed without being read again. What somebody else writes to such a
	// knob is seen, and put right, within this time.
	verifyWithin = 5 * time.Second
	// glanceWithin is the same for the other knobs in sight, of which there
	// are many more.
	glanceWithin = 15 * time.Second
)

// A sight is what a resident host remembers of the knobs that its snapshots
// show. Reading all knobs of a hundred workloads in every turn would be most
// of what the agent costs.
type sight struct {
	mu     sync.Mutex
	files  []node.File       // the knobs that every group in sight shows
	runs   bool              // best-effort workloads show how they run
	groups []node.CgroupPath // whose knobs are in sight
	extra  []node.Knob       // others in sight
	inodes map[node.CgroupPath]uint64
	known  map[node.Knob]node.Value // nil: it could not be read
	order  []node.Knob              // that are in sight
	stale  bool                     // groups may have been made anew

	touched        []node.Knob // that Tenon has changed
	ours, others   []node.Knob // of order: these, and the rest
	verify, glance lap         // round ours, and round others

	inner      []node.CgroupPath // inside best-effort workloads
	innerStale bool

	ending map[node.Knob]node.Run // groups that were asked to end, or killed
}

func newSight() *sight {
	return &sight{files: node.Files, runs: true, inodes: map[node.CgroupPath]uint64{}, known: map[node.Knob]node.Value{}, innerStale: true}
}

// look returns the knobs of groups, sorted, and those that were touched: from
// memory, but for those that are new, and for those whose turn it is.
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
	s.reread()
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
	for i := range s.verify.due(at, len(s.ours), verifyWithin) {
		s.known[s.ours[i]] = h.knobOrNil(s.ours[i])
	}
	for i := range s.glance.due(at, len(s.others), glanceWithin) {
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

// divide tells the knobs in sight that Tenon has changed from the others.
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

// turnTo forgets what left the sight and what is no longer the same group.
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

// saw notes what a write read back; after an error the knob is read anew.
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

// forget drops all that is known of the knobs.
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

// show makes files the knobs that every group in sight shows.
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

// expire makes the next look compare every group with the one that it knew.
func (s *sight) expire() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale, s.innerStale = true, true
}

// inside returns what list found last, and lists anew after expire.
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
		return h.shownRun(string(k.Cgroup))
	}
	v, err := h.knobs.Read(k)
	if err != nil {
		return nil
	}
	return v
}
