package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/testbed"
)

// labLabel is the label of all objects that an experiment of the lab creates.
// Its value is the kind of the experiment.
const labLabel = "tenon.sh/lab"

// cleanPatience is the longest time for the removal of the objects of an
// experiment, even if the user interrupted the experiment.
const cleanPatience = 2 * time.Minute

// A Target says where the pods of an experiment run.
type Target struct {
	Context   string // of kubectl (default: the current one)
	Namespace string // made, and removed at the end, if it does not exist (default: tenon-lab)
}

// namespaceName matches the names of namespaces (RFC 1123, as Kubernetes demands).
var namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// OrDefaults sets the defaults, and calls fault for a fault.
func (t Target) OrDefaults(fault func(format string, args ...any)) Target {
	t.Namespace = cmp.Or(t.Namespace, "tenon-lab")
	if !namespaceName.MatchString(t.Namespace) {
		fault("--namespace %q: want 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", t.Namespace)
	}
	return t
}

// A Space is the namespace in which an experiment creates its objects.
type Space struct {
	Client
	Target
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
	var err error
	if s.lease, err = s.hold(ctx, s.Namespace, cmp.Or(s.times, usualTimes), s.tell); err != nil {
		return err
	}
	return s.Remove(ctx, s.All(), "foreground")
}

func (s *Space) tell(format string, args ...any) {
	if s.Tell != nil {
		s.Tell(format, args...)
	}
}

// webhookPatience is the longest time for which a webhook may be out of reach. Its
// pods may run on the tested node, where they can be slow.
const webhookPatience = time.Minute

// Apply creates objects. If a webhook does not answer, it tries again.
func (s *Space) Apply(ctx context.Context, objects []Object) error {
	for deadline := time.Now().Add(webhookPatience); ; {
		_, err := s.Do(ctx, Manifest(objects), "apply", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") || time.Now().After(deadline) {
			return err
		}
		s.tell("waiting for a webhook: %v", err)
		if err := testbed.Pause(ctx, 2*time.Second); err != nil {
			return err
		}
	}
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
