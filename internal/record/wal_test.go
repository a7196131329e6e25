package record

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// SQLite forgets what comes after a damaged page of the WAL. The log says so. A page that a crash cut short is
// no damage.
func TestDamagedWriteAheadLogIsSaid(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(wal []byte) []byte
		want   bool
	}{
		{"whole", func(b []byte) []byte { return b }, false},
		{"the last page is cut", func(b []byte) []byte { return b[:len(b)-100] }, false},
		{"the last page is half old", func(b []byte) []byte { clear(b[len(b)-100:]); return b }, false},
		{"a changed bit", func(b []byte) []byte { b[walHeader+2*(walFrameHeader+4096)+100] ^= 1; return b }, true},
		{"a page of zeros", func(b []byte) []byte { clear(b[8192:][:4096]); return b }, true},
		{"no header", func(b []byte) []byte { clear(b[:512]); return b }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openIdleStore(t, Config{})
			for _, id := range []string{"v", "w", "x", "y", "z"} {
				create(t, s, Execution{ID: id, Key: id})
			}
			c := killed(t, s)
			path := c.Dir + "/" + databaseName + "-wal"
			wal, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, tt.damage(wal))
			var logged bytes.Buffer
			c.Log = slog.New(slog.NewTextHandler(&logged, nil))
			openIdleStore(t, c)
			if got := strings.Contains(logged.String(), "write-ahead log of the database is damaged"); got != tt.want {
				t.Errorf("said %v, want %v: %s", got, tt.want, logged.String())
			}
		})
	}
}
