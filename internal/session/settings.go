package session

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/skillrun/skillrun/internal/quantity"
)

// Bounds of the labels of a session. List returns the labels of all sessions of a tenant, so they are bounded.
const (
	maxLabels     = 64
	maxLabelBytes = 256 // of a key or a value
)

// Settings are the choices of the session's creator.
type Settings struct {
	Labels map[string]string `json:"labels,omitempty"`
	// IdleTTL is from the last use to the removal. Zero: Rules.DefaultIdle at the creation; if that
	// is zero, too, the session does not expire by being idle.
	IdleTTL time.Duration `json:"idle_ttl,omitempty"`
	// TTL is from the creation to the removal. Zero: Rules.MaxTTL at the creation.
	TTL time.Duration `json:"ttl,omitempty"`
	// Bytes and Files bound the files of one version. Zero: only the Rules bound them.
	Bytes int64 `json:"bytes,omitempty"`
	Files int   `json:"files,omitempty"`
}

// clone copies the labels: a caller's map must not change with the session, nor the session with the map.
func (set Settings) clone() Settings {
	set.Labels = maps.Clone(set.Labels)
	return set
}

// since returns the rules for an update. A setting that stays as it was has no bound, because the operator may
// have lowered the bound since the creation.
func (r Rules) since(was, set Settings) Rules {
	if set.TTL == was.TTL {
		r.MaxTTL = 0
	}
	if set.Bytes == was.Bytes {
		r.Bytes = 0
	}
	if set.Files == was.Files {
		r.Files = 0
	}
	return r
}

// above is the reason of a setting above its bound. The second value is the key of the bound.
const above = "must be at most %s (%s in the daemon's configuration)"

// check returns a *SettingsError for a setting that the rules do not allow.
func (set Settings) check(r Rules) error {
	switch {
	case set.IdleTTL < 0:
		return &SettingsError{"idle_ttl", "must not be negative"}
	case set.TTL < 0:
		return &SettingsError{"ttl", "must not be negative"}
	case r.MaxTTL > 0 && set.TTL > r.MaxTTL:
		return &SettingsError{"ttl", fmt.Sprintf(above, quantity.Time(r.MaxTTL), "sessions.ttl")}
	case set.Bytes < 0:
		return &SettingsError{"max_bytes", "must not be negative"}
	case r.Bytes > 0 && set.Bytes > r.Bytes:
		return &SettingsError{"max_bytes", fmt.Sprintf(above, quantity.Bytes(r.Bytes), "sessions.bytes")}
	case set.Files < 0:
		return &SettingsError{"max_files", "must not be negative"}
	case r.Files > 0 && set.Files > r.Files:
		return &SettingsError{"max_files", fmt.Sprintf(above, strconv.Itoa(r.Files), "sessions.files")}
	case len(set.Labels) > maxLabels:
		return &SettingsError{"labels", fmt.Sprintf("must be at most %d", maxLabels)}
	}
	for k, v := range set.Labels {
		if k == "" || len(k) > maxLabelBytes || len(v) > maxLabelBytes {
			return &SettingsError{"labels", fmt.Sprintf("must have keys of 1 to %d bytes and values of at most %d", maxLabelBytes, maxLabelBytes)}
		}
	}
	return nil
}
