package nodereport

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/decide/prospect"
)

// TestAnOutlookIsReported also sends it to an API server whose definition of the reports
// has no outlook: the batch resources of the node must not be lost.
func TestAnOutlookIsReported(t *testing.T) {
	v := view()
	if got := Status(v, nil).Outlook; got != nil {
		t.Errorf("without an outlook: %+v", got)
	}
	v.Tick.Outlook = &prospect.Outlook{CPU: 4000, From: 28_333_440, To: 28_333_500, Step: 1, Seen: 60}
	status := Status(v, nil)
	if status.Outlook == nil || status.Outlook.SeenMinutes != 60 || status.Outlook.Capacity.CPU.String() != "4" {
		t.Fatalf("%+v", status.Outlook)
	}
	status.Batch = offer(100).Batch
	a := &api{exists: true}
	var log strings.Builder
	s := NewSender(a, "node-1", func() types.UID { return "" }, slog.New(slog.NewTextHandler(&log, nil)))
	if err := s.send(context.Background(), status); err != nil {
		t.Fatal(err)
	}
	if _, last := a.said(); !strings.Contains(last, `"outlook":{`) || !strings.Contains(last, `"seenMinutes":60`) {
		t.Error(last)
	}
	s.fields = &apiserver.Fields{Properties: map[string]*apiserver.Fields{"status": {Properties: map[string]*apiserver.Fields{"batch": {}, "reported": {}}}}}
	s.asked = time.Now()
	if err := s.send(context.Background(), status); err != nil {
		t.Fatal(err)
	}
	if _, last := a.said(); strings.Contains(last, "outlook") || !strings.Contains(last, `"amount":"100m"`) || !strings.Contains(log.String(), "status.outlook") {
		t.Errorf("an older definition: %s\n%s", last, log.String())
	}
}

// TestTheNextOutlookWaitsForTheHeartbeat: all nodes make one at each full hour, and must
// not send a report more for it.
func TestTheNextOutlookWaitsForTheHeartbeat(t *testing.T) {
	at := func(from int64) *prospect.Outlook { return &prospect.Outlook{From: from, To: from + 60} }
	v := view()
	var p Pace
	p.Sent(noon, Status(v, nil))
	v.Tick.Outlook = at(0)
	if !p.Due(noon.Add(changeGap), Status(v, nil)) {
		t.Error("the first outlook waits for the heartbeat")
	}
	p.Sent(noon, Status(v, nil))
	v.Tick.Outlook = at(60)
	if p.Due(noon.Add(heartbeat-time.Second), Status(v, nil)) {
		t.Error("the next outlook makes a report of its own")
	}
	if !p.Due(noon.Add(heartbeat), Status(v, nil)) {
		t.Error("there is no heartbeat")
	}
}
