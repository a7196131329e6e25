package session

import (
	"errors"
	"testing"
)

// The texts go to callers.
func TestErrorTexts(t *testing.T) {
	cause := errors.New("checksum differs")
	for want, err := range map[string]error{
		"session s is in use by e; try again when it has ended":                                              &BusyError{ID: "s", Writer: "e"},
		"session s is in use by e, and 64 more wait; try again later":                                        &BusyError{ID: "s", Writer: "e", Queued: 64},
		"session s is in use by e, also at the end of the queue timeout":                                     &BusyError{ID: "s", Writer: "e", Waited: true},
		"the tenant has 3 sessions, and may have no more; delete one":                                        &QuotaError{QuotaSessions, 3, 4},
		"the sessions of the tenant would need 9 bytes on disk, of at most 8; delete files or sessions":      &QuotaError{QuotaTenantBytes, 8, 9},
		"the session would have 9 bytes, of at most 8; delete files":                                         &QuotaError{QuotaBytes, 8, 9},
		"the session would have 9 files, of at most 8; delete files":                                         &QuotaError{QuotaFiles, 8, 9},
		"the list of the session's files would have 9 bytes, of at most 8; use shorter paths or fewer files": &QuotaError{QuotaList, 8, 9},
		"ttl must not be negative":    &SettingsError{"ttl", "must not be negative"},
		`path "a\nb": is there twice`: &PathError{"a\nb", "is there twice"},
		"session s: version 2 is damaged: checksum differs; use an earlier version": &DamagedError{"s", 2, cause},
	} {
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
	if !errors.Is(&DamagedError{Err: cause}, cause) {
		t.Error("the cause of a damage is lost")
	}
}
