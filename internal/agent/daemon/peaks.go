package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
)

// peaks saves what the batch resources have learnt of the peaks of other work, each time
// that they learn: once a minute. The other state of the policies is saved only at an end in
// order, and is soon too old.
type peaks struct {
	file   string
	from   proc.FS
	log    *slog.Logger
	saved  time.Duration // Peaks.Watched at the last save
	failed string        // the last error of a save that was logged
}

// A savedPeaks is the content of statedir.PeaksFile.
type savedPeaks struct {
	stamp
	Peaks overcommit.Peaks `json:"peaks"`
}

// errTooOld is the reason why no history of a file is used: the workloads of today may be
// others with the same names.
var errTooOld = errors.New("it is too old")

func openPeaks(stateDir string, from proc.FS, log *slog.Logger) *peaks {
	return &peaks{file: filepath.Join(stateDir, statedir.PeaksFile), from: from, log: log}
}

// earlier returns what an earlier daemon of this boot has learnt. If its file cannot be used,
// it logs why and removes it, and the batch resources begin to learn anew.
func (p *peaks) earlier() overcommit.Peaks {
	learnt, err := p.load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(fmt.Errorf("read %s: %w", p.file, err), statedir.Remove(p.file))
		p.log.Warn("the peaks of other work are learnt anew", "error", err)
	}
	return learnt
}

func (p *peaks) load() (overcommit.Peaks, error) {
	none := overcommit.Peaks{}
	text, err := statedir.ReadFile(p.file)
	if err != nil {
		return none, err
	}
	var last savedPeaks
	if err := json.Unmarshal(text, &last); err != nil {
		return none, err
	}
	age, err := last.age(p.from)
	if err != nil {
		return none, err
	}
	last = printable.Unquote(last, text)
	if err := last.Peaks.Check(); err != nil {
		return none, err
	}
	left := last.Peaks.After(age)
	if len(left.Past) == 0 {
		return none, fmt.Errorf("%w: saved %v ago", errTooOld, age.Round(time.Second))
	}
	return left, nil
}

// tick saves what was learnt, if the last tick has learnt.
func (p *peaks) tick(learnt overcommit.Peaks) {
	watched := learnt.Watched()
	if watched == 0 || watched == p.saved {
		return
	}
	p.saved = watched
	said := ""
	if err := p.save(learnt); err != nil {
		if said = err.Error(); said != p.failed {
			p.log.Warn("the peaks of other work are learnt anew if tenond is killed", "error", err)
		}
	}
	p.failed = said
}

func (p *peaks) save(learnt overcommit.Peaks) error {
	now, err := stampNow(p.from)
	if err != nil {
		return err
	}
	text, err := printable.Marshal(savedPeaks{now, learnt})
	if err != nil {
		return fmt.Errorf("save the peaks of other work: %w", err)
	}
	return statedir.WriteFile(p.file, text)
}
