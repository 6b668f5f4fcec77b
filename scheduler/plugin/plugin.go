// Package plugin is a plugin of the kube-scheduler that chooses the CPUs of
// pods, and considers the whole cluster. It imports only published modules of
// Kubernetes, so that any scheduler can contain it.
package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name is the name of the plugin in the configuration of the scheduler.
const Name = "TenonCPUs"

// Args are the arguments of the plugin in the configuration of the scheduler
// (pluginConfig).
type Args struct {
	// StaleAfter is an age, on the clock of the scheduler. If the report of a
	// node has not changed for this long, the node takes no more pods that
	// demand CPUs. The least value is 90 seconds: an agent sends a report each
	// minute even if nothing has changed.
	StaleAfter metav1.Duration `json:"staleAfter"`
}

const (
	defaultStale = 3 * time.Minute
	// minStale is longer than the time between two reports of a healthy node in
	// which nothing changes: a minute (heartbeat in package nodereport), and some
	// seconds if the report is late.
	minStale = 90 * time.Second
)

// parseArgs reads the arguments. An unknown key is an error, because otherwise
// the scheduler would run without a setting that its owner wrote.
func parseArgs(o runtime.Object) (Args, error) {
	a := Args{StaleAfter: metav1.Duration{Duration: defaultStale}}
	var raw []byte
	switch o := o.(type) {
	case nil:
		return a, nil
	case *runtime.Unknown:
		raw = o.Raw
	default:
		return a, fmt.Errorf("pluginConfig of %s: args are %T: want an object", Name, o)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); len(raw) > 0 && err != nil {
		return a, fmt.Errorf("pluginConfig of %s: args: %w", Name, err)
	}
	for key, value := range keys {
		switch key {
		case "apiVersion", "kind": // the configuration API adds them
		case "staleAfter":
			if err := json.Unmarshal(value, &a.StaleAfter); err != nil || a.StaleAfter.Duration < minStale {
				return a, fmt.Errorf("pluginConfig of %s: args.staleAfter: %s: want a duration of at least %v, such as 3m", Name, value, minStale)
			}
		default:
			return a, fmt.Errorf("pluginConfig of %s: args.%s: there is no such key: want staleAfter", Name, key)
		}
	}
	return a, nil
}

// Plugin is the plugin in one profile of the scheduler. All profiles share one
// ledger.
type Plugin struct {
	handle fwk.Handle
	keeper *keeper
	now    atomic.Pointer[currentCycle]
}

var (
	_ fwk.PreFilterPlugin     = (*Plugin)(nil)
	_ fwk.PreFilterExtensions = (*Plugin)(nil)
	_ fwk.FilterPlugin        = (*Plugin)(nil)
	_ fwk.PreScorePlugin      = (*Plugin)(nil)
	_ fwk.ScorePlugin         = (*Plugin)(nil)
	_ fwk.ScoreExtensions     = (*Plugin)(nil)
	_ fwk.ReservePlugin       = (*Plugin)(nil)
	_ fwk.BindPlugin          = (*Plugin)(nil)
	_ fwk.EnqueueExtensions   = (*Plugin)(nil)
	_ fwk.SignPlugin          = (*Plugin)(nil)
)

// New makes the plugin for a profile. It returns an error if it cannot read the
// arguments, or if it does not know the address of the API server.
func New(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	return makePlugin(ctx, args, h, reportsOf)
}

// keepers maps sets of informers to their keepers. All profiles of a scheduler
// share one set, and therefore one keeper.
var keepers struct {
	sync.Mutex
	of map[informers.SharedInformerFactory]*keeper
}

// makePlugin makes the plugin. The function source returns the source of reports.
func makePlugin(ctx context.Context, args runtime.Object, h fwk.Handle, source func(fwk.Handle) (cache.ListerWatcher, error)) (*Plugin, error) {
	a, err := parseArgs(args)
	if err != nil {
		return nil, err
	}
	keepers.Lock()
	defer keepers.Unlock()
	k := keepers.of[h.SharedInformerFactory()]
	if k == nil {
		reports, err := source(h)
		if err != nil {
			return nil, err
		}
		k = newKeeper(h, a.StaleAfter.Duration)
		if err := k.start(ctx, h.SharedInformerFactory(), reports); err != nil {
			return nil, err
		}
		if keepers.of == nil {
			keepers.of = map[informers.SharedInformerFactory]*keeper{}
		}
		keepers.of[h.SharedInformerFactory()] = k
		register()
		context.AfterFunc(ctx, func() {
			keepers.Lock()
			defer keepers.Unlock()
			delete(keepers.of, h.SharedInformerFactory())
		})
	}
	return &Plugin{handle: h, keeper: k}, nil
}

// Name implements fwk.Plugin.
func (*Plugin) Name() string { return Name }
