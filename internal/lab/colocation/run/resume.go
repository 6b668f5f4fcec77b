package run

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/testbed"
)

// A stopped experiment has its record and the starts that it has finished.
type stopped struct {
	record colocation.Experiment
	runs   []colocation.Run
}

// next returns the first start that is still to run. The last one runs again if it is
// void.
func (s stopped) next() int {
	if len(s.runs) == 0 {
		return 0
	}
	last := s.runs[len(s.runs)-1]
	if len(last.Void) > 0 {
		return last.Block
	}
	return last.Block + 1
}

// readStopped reads the experiment that goes on, and checks that its settings are those
// of c. Only an experiment whose modes take turns can go on: a start has all modes.
func readStopped(c Config) (s stopped, err error) {
	refuse := func(err error) (stopped, error) {
		return stopped{}, testbed.RefuseFlags(fmt.Errorf("--resume %s: %w", c.Out, err))
	}
	if archive.Exists(c.Out) {
		return refuse(errors.New("the experiment is packed, so it has ended"))
	}
	if s.record, s.runs, err = report.Load[colocation.Experiment, colocation.Run](c.Out); err != nil {
		return refuse(err)
	}
	e := s.record
	switch {
	case e.Kind != c.kind() || e.Design != colocation.DesignSwitch:
		err = fmt.Errorf("only an experiment with --design %s can go on", colocation.DesignSwitch)
	case e.Ended.Planned():
		err = errors.New("the experiment has ended as planned")
	case e.Version != c.Version:
		err = fmt.Errorf("version %s began the experiment, this is %s", e.Version, c.Version)
	case !slices.Equal(e.Modes, c.Modes) || e.Turn != c.Turn || e.Duration != c.Duration || e.Seed != c.Seed || !slices.Equal(e.Looks, stat.StartLooks(c.Blocks, c.UntilResolved)):
		err = errors.New("the experiment began with other modes, lengths, looks or another seed")
	}
	if err != nil {
		return refuse(err)
	}
	return s, nil
}

// takeUp sets what the calibration of a stopped experiment found. Machine and programs
// have to be the same.
func (b *bench) takeUp(s site) error {
	e, quiet := b.before.record, b.caveats
	if e.Own != nil {
		for _, w := range e.Own.Batch {
			b.solo = append(b.solo, w.Solo)
		}
	}
	var now colocation.Experiment
	s.describe(&now)
	var others []string
	differ := func(what string, differs bool, was, is any) {
		if differs {
			others = append(others, fmt.Sprintf("%s: %v, was %v", what, is, was))
		}
	}
	differ("tested CPUs", e.TestedCPUs != b.Place.Tested, e.TestedCPUs, b.Place.Tested)
	differ("client CPUs", e.ClientCPUs != b.Place.Client, e.ClientCPUs, b.Place.Client)
	differ("kernel", e.Machine.Kernel != now.Machine.Kernel, e.Machine.Kernel, now.Machine.Kernel)
	differ("programs", !maps.Equal(e.Versions, b.versions), e.Versions, b.versions)
	if e.Own != nil && len(b.solo) != len(b.works) || e.Own == nil && len(b.works) > 0 {
		others = append(others, "the batch work")
	}
	if len(others) > 0 {
		return fmt.Errorf("resume %s: the machine or its programs are not those of the first part: %s", b.Out, strings.Join(others, "; "))
	}
	b.load.Rate, b.processes, b.threads = e.OfferedRate, e.BEProcesses, e.BEThreads
	e.Ended = ""
	e.Caveats = append(slices.Clone(e.Caveats), quiet...)
	e.Caveats = append(e.Caveats, fmt.Sprintf("stopped before start %d, and went on at %s", b.before.next(), time.Now().Format(time.RFC3339)))
	b.record = e
	return nil
}
