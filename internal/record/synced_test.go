package record

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/durable"
)

// crashed opens the store of a disk as a loss of power now would leave it.
func crashed(t *testing.T, disk *disktest.Ext4) *Store {
	t.Helper()
	return openIdleStore(t, Config{Dir: filepath.Join(disk.AfterCrash(t).Dir, "record")})
}

func syncDisk(t *testing.T, disk *disktest.Ext4) error {
	t.Helper()
	f, err := durable.OpenFS(disk.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// claim creates an execution with a key. It notes an acknowledged one.
func claim(t *testing.T, s *Store, key string, acknowledged map[string]string) error {
	t.Helper()
	x := Execution{ID: NewID(), Tenant: "a", Key: key}
	_, err := s.Create(t.Context(), x, nil)
	if err == nil {
		acknowledged[key] = x.ID
	}
	return err
}

func checkpoint(_ *testing.T, s *Store) error {
	_, err := s.db.claims.Exec("PRAGMA wal_checkpoint")
	return err
}

// wantClaims checks that a store knows the keys.
func wantClaims(t *testing.T, s *Store, claims map[string]string) {
	t.Helper()
	for key, want := range claims {
		if got, _, err := s.Holder(t.Context(), "a", key); got != want || err != nil {
			t.Errorf("key %q was acknowledged as %s, and is %q, %v", key, want, got, err)
		}
	}
}

// endProcess closes a store as SIGKILL does: SQLite does not write the WAL to the database, because somebody else
// seems to have the database open.
func endProcess(t *testing.T, s *Store) {
	t.Helper()
	f, err := os.Open(s.db.path)
	if err != nil {
		t.Fatal(err)
	}
	shared := unix.Flock_t{Type: unix.F_RDLCK, Start: 0x40000002, Len: 510} // SHARED_FIRST, SHARED_SIZE of SQLite
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &shared); err != nil {
		t.Fatal(err)
	}
	s.db.synced.lost.Store(nil)
	if err := errors.Join(s.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if !hasBytes(s.db.path + "-wal") {
		t.Fatal("the write-ahead log is gone")
	}
}

// After a failed sync a later one succeeds without the lost pages. No claim may rely on it.
func TestNoClaimAfterLostWrite(t *testing.T) {
	for _, tt := range []struct {
		name string
		pass int64 // requests, before the disk fails
		lose func(*testing.T, *Store) error
	}{
		{"the sync of a claim fails", 0, func(t *testing.T, s *Store) error {
			return claim(t, s, "lost", map[string]string{})
		}},
		// As after a commit, but there SQLite drops the error.
		{"the sync of the log before a checkpoint fails", 0, checkpoint},
		{"a checkpoint fails", 1, checkpoint}, // only the flush of the log passes, which is synced
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk, claims := disktest.NewFailingExt4(t), map[string]string{}
			s := openIdleStore(t, Config{Dir: filepath.Join(disk.Dir, "record")})
			if err := claim(t, s, "before", claims); err != nil {
				t.Fatal(err)
			}
			create(t, s, Execution{ID: "without-key"})
			if err := s.flush(t.Context()); err != nil { // not synced
				t.Fatal(err)
			}
			if tt.pass > 0 {
				if err := syncDisk(t, disk); err != nil {
					t.Fatal(err)
				}
			}
			var requests atomic.Int64
			disk.Device.Fail(func() bool { return requests.Add(1) > tt.pass })
			err := tt.lose(t, s)
			if err == nil || disk.Device.Failed() == 0 {
				t.Fatalf("got %v, and %d requests have failed", err, disk.Device.Failed())
			}
			disk.Device.Fail(nil)
			err = claim(t, s, "after", claims)
			wantClaims(t, crashed(t, disk), claims)
			var lost *LostWriteError
			if !errors.As(err, &lost) {
				t.Errorf("a claim after the lost write: %v", err)
			}
			if _, _, err := s.Holder(t.Context(), "a", "before"); !errors.As(err, &lost) {
				t.Errorf("a lookup after the lost write: %v", err)
			}
			if err := s.HandOver(t.Context()); !errors.As(err, &lost) {
				t.Errorf("a takeover after the lost write: %v", err)
			}
			endProcess(t, s)
			s = openIdleStore(t, s.config)
			if err := claim(t, s, "next start", claims); err != nil {
				t.Fatal(err)
			}
			after := crashed(t, disk)
			wantClaims(t, after, claims)
			if _, err := after.Get(t.Context(), "a", "without-key"); err != nil {
				t.Errorf("an execution that the next start has written again: %v", err)
			}
			// Also without the log, which is empty then.
			if err := s.db.emptyLog(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = syncDisk(t, disk) // the kernel reports the lost write again
			wantClaims(t, crashed(t, disk), claims)
		})
	}
}

// A claim that the last process has not synced is synced before anyone learns of it.
func TestStartSyncsClaims(t *testing.T) {
	disk, claims := disktest.NewFailingExt4(t), map[string]string{}
	s := openIdleStore(t, Config{Dir: filepath.Join(disk.Dir, "record")})
	if err := claim(t, s, "synced", claims); err != nil {
		t.Fatal(err)
	}
	// The WAL as SIGKILL leaves it between the write and the sync of a claim.
	x := Execution{ID: "x", Tenant: "a", Key: "written"}
	change, err := createStatements(s.number(1), &x, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.states.Exec("PRAGMA synchronous = OFF"); err != nil {
		t.Fatal(err)
	}
	if err := s.apply(t.Context(), s.batch.name, [][]statement{change}, 0); err != nil {
		t.Fatal(err)
	}
	endProcess(t, s)
	claims["written"] = "x"
	wantClaims(t, openIdleStore(t, s.config), claims)
	wantClaims(t, crashed(t, disk), claims)
}

// A sync that ends while ext4 gives up its journal can succeed for nothing. So keys are not answered afterwards.
func TestNoAnswerFromDeadFileSystem(t *testing.T) {
	disk, claims := disktest.NewFailingExt4(t), map[string]string{}
	s := openIdleStore(t, Config{Dir: filepath.Join(disk.Dir, "record")})
	if err := claim(t, s, "key", claims); err != nil {
		t.Fatal(err)
	}
	wantClaims(t, s, claims) // its pages are in SQLite's memory
	disktest.CutPower(t, disk.Dir)
	if id, _, err := s.Holder(t.Context(), "a", "key"); err == nil {
		t.Errorf("the key was answered with %s", id)
	}
	if err := s.db.synced.believed(); err == nil {
		t.Error("the last sync is believed")
	}
	_ = s.Close() // nothing can be written
}
