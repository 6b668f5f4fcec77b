package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// labLabel is the label of all objects that an experiment of the lab creates.
// Its value is the kind of the experiment.
const labLabel = "tenon.sh/lab"

// cleanPatience is the longest time for the removal of the objects of an
// experiment, even if the user interrupted the experiment.
const cleanPatience = 2 * time.Minute

// A Space is the namespace in which an experiment creates its objects.
type Space struct {
	Client
	Namespace  string
	Experiment string // kind of the experiment: the value of the label of its objects
	Objects    string // kinds of the objects that it creates, separated by commas, such as jobs,pods
	// Tell shows the user what Enter waits for. It may be nil.
	Tell func(format string, args ...any)

	times         leaseTimes // zero: the usual ones
	lease         *Lease     // nil: another lab runs here, or none has entered yet
	created, made bool       // this lab created the namespace; it or another of its kind did
}

// Labels returns labels for an object of the experiment: the common one and more.
func (s *Space) Labels(more Object) Object {
	labels := Object{labLabel: s.Experiment}
	for key, value := range more {
		labels[key] = value
	}
	return labels
}

// Selector returns a selector for the objects of this experiment with a given
// label. Objects of other experiments may have the same label.
func (s *Space) Selector(label, value string) string {
	return s.All() + "," + label + "=" + value
}

// All returns a selector for all objects of this experiment.
func (s *Space) All() string { return labLabel + "=" + s.Experiment }

// Enter creates the namespace if it does not exist. It returns an error if
// another lab runs there. It removes the objects of an experiment that was killed,
// and waits until their pods have ended. The caller must call Leave, even after an
// error.
func (s *Space) Enter(ctx context.Context) error {
	var space struct {
		Metadata struct{ Labels map[string]string }
	}
	switch err := s.Get(ctx, &space, "namespace", s.Namespace); {
	case err == nil:
		s.made = space.Metadata.Labels[labLabel] == s.Experiment
	case errors.Is(err, NotFound):
		s.created, s.made = true, true
	default:
		return err
	}
	if s.made {
		_, err := s.Do(ctx, Manifest([]Object{{
			"apiVersion": "v1", "kind": "Namespace", "metadata": Object{"name": s.Namespace, "labels": s.Labels(nil)},
		}}), "apply", "-f", "-")
		if err != nil {
			return err
		}
	}
	tell := s.Tell
	if tell == nil {
		tell = func(string, ...any) {}
	}
	var err error
	if s.lease, err = s.hold(ctx, s.Namespace, cmp.Or(s.times, usualTimes), tell); err != nil {
		return err
	}
	return s.Remove(ctx, s.All(), "foreground")
}

// Remove deletes the objects of the experiment that match a selector. With the
// cascade "foreground", it waits until their pods have ended. With "background",
// it does not wait for pods. It removes nothing if another lab may run here.
func (s *Space) Remove(ctx context.Context, selector, cascade string) error {
	if err := s.lease.Held(); err != nil {
		return err
	}
	_, err := s.Do(ctx, "", "delete", s.Objects, "-l", selector, "--cascade="+cascade, "--wait", "--timeout=60s", "--ignore-not-found")
	return err
}

// Clean calls Remove with a time limit of its own. Therefore it works even
// after the end of ctx.
func (s *Space) Clean(ctx context.Context, selector, cascade string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer stop()
	return s.Remove(ctx, selector, cascade)
}

// Leave removes the objects of the experiment. It also removes the namespace if
// an experiment of this kind created it. It removes nothing while another lab
// runs there.
func (s *Space) Leave() error {
	ctx, stop := context.WithTimeout(context.Background(), cleanPatience)
	defer stop()
	if s.lease == nil {
		return s.leaveUnused(ctx)
	}
	defer s.lease.end()
	_ = s.lease.Renew(ctx) // Held returns the error, if it matters
	if err := s.lease.Held(); err != nil {
		return fmt.Errorf("remove nothing: %w", err)
	}
	if s.made {
		return s.removeNamespace(ctx)
	}
	return errors.Join(s.Clean(ctx, s.All(), "foreground"), s.lease.Release(ctx))
}

// leaveUnused removes the namespace if this lab created it, and no lab has used it
// since.
func (s *Space) leaveUnused(ctx context.Context) error {
	if !s.created {
		return nil
	}
	_, used, err := (&Lease{client: s.Client}).read(ctx)
	if err != nil || used {
		return err
	}
	return s.removeNamespace(ctx)
}

func (s *Space) removeNamespace(ctx context.Context) error {
	_, err := s.Do(ctx, "", "delete", "namespace", s.Namespace, "--ignore-not-found", "--wait")
	return err
}
