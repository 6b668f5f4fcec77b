package policy

import (
	"encoding/json"

	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/decide/cpus/seat"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/suppress"
)

// configForm is the JSON form of a Config. As in old captures, the keys of Pool are
// among the keys of Suppress, so that old captures can be replayed.
type configForm struct {
	CPUQOS     isolation.Config  `json:"cpu_qos,omitzero"`
	Suppress   suppressForm      `json:"suppress,omitzero"`
	Memory     memory.Config     `json:"memory_qos,omitzero"`
	Cache      cache.Config      `json:"cache_qos,omitzero"`
	IO         blockio.Config    `json:"io,omitzero"`
	Burst      burst.Config      `json:"burst,omitzero"`
	Overcommit overcommit.Config `json:"overcommit,omitzero"`
	Evict      evict.Config      `json:"evict,omitzero"`
	Seats      seat.Config       `json:"seats,omitzero"`
	Misfit     misfit.Config     `json:"misfit,omitzero"`
}

type suppressForm struct {
	suppress.Config
	facts.Pool
}

// MarshalJSON writes c in the form that it has in a capture.
func (c Config) MarshalJSON() ([]byte, error) {
	return json.Marshal(configForm{c.CPUQOS, suppressForm{c.Suppress, c.Pool}, c.Memory, c.Cache, c.IO, c.Burst, c.Overcommit, c.Evict, c.Seats, c.Misfit})
}

// UnmarshalJSON reads the form that MarshalJSON writes.
func (c *Config) UnmarshalJSON(text []byte) error {
	f := configForm{c.CPUQOS, suppressForm{c.Suppress, c.Pool}, c.Memory, c.Cache, c.IO, c.Burst, c.Overcommit, c.Evict, c.Seats, c.Misfit}
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	*c = Config{
		Pool: f.Suppress.Pool, CPUQOS: f.CPUQOS, Suppress: f.Suppress.Config, Memory: f.Memory,
		Cache: f.Cache, IO: f.IO, Burst: f.Burst, Overcommit: f.Overcommit, Evict: f.Evict, Seats: f.Seats, Misfit: f.Misfit,
	}
	return nil
}
