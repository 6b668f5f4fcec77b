package host

import (
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/node"
)

// verifyWithin is how long the value of a knob is believed without being read
// again. What somebody else writes to a knob is seen, and put right, within
// this time.
const verifyWithin = 5 * time.Second

// A sight is what a resident host remembers of the knobs that its snapshots
// show. Reading all knobs of a hundred workloads in every turn would be most
// of what the agent costs.
type sight struct {
	mu     sync.Mutex
	files  []node.File       // the knobs that every group in sight shows
	groups []node.CgroupPath // whose knobs are in sight
	extra  []node.Knob       // others in sight
	inodes map[node.CgroupPath]uint64
	known  map[node.Knob]node.Value // nil: it could not be read
	order  []node.Knob              // in which knobs are verified
	next   int                      // of order
	at     time.Time                // of the last look
	owed   time.Duration            // since then and before, not yet spent on verifying
	stale  bool                     // groups may have been made anew

	inner      []node.CgroupPath // inside best-effort workloads
	innerStale bool
}

func newSight() *sight {
	return &sight{files: node.Files, inodes: map[node.CgroupPath]uint64{}, known: map[node.Knob]node.Value{}, innerStale: true}
}

// look returns the knobs of groups, sorted, and those that were touched: from
// memory, but for those that are new, and for those whose turn it is.
func (s *sight) look(at time.Time, groups []node.CgroupPath, touched []node.Knob, h *Host) map[node.Knob]node.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	extra := slices.DeleteFunc(touched, func(k node.Knob) bool { return slices.Contains(s.files, k.File) })
	slices.SortFunc(extra, node.Knob.Compare)
	if s.stale || !slices.Equal(groups, s.groups) || !slices.Equal(extra, s.extra) {
		s.turnTo(groups, extra, h)
	}
	for _, k := range s.order {
		if _, known := s.known[k]; !known {
			s.known[k] = h.knobOrNil(k)
		}
	}
	if !s.at.IsZero() {
		s.owed = min(s.owed+max(at.Sub(s.at), 0), verifyWithin)
	}
	s.at = at
	for n := time.Duration(len(s.order)); n > 0 && s.owed >= verifyWithin/n; s.owed -= verifyWithin / n {
		k := s.order[s.next%len(s.order)]
		s.known[k] = h.knobOrNil(k)
		s.next = (s.next + 1) % len(s.order)
	}
	now := make(map[node.Knob]node.Value, len(s.known))
	for k, v := range s.known {
		if v != nil {
			now[k] = v
		}
	}
	return now
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
		for _, k := range extra {
			if k.Cgroup == p {
				keep(k)
			}
		}
	}
	for p := range inodes {
		h.tree.Close(string(p))
	}
	s.groups, s.extra, s.next, s.stale = groups, extra, 0, false
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
	if !slices.Equal(s.files, files) {
		s.files, s.stale = slices.Clone(files), true
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
	v, err := h.readKnob(k)
	if err != nil {
		return nil
	}
	return v
}
