package quantity

import (
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1 KiB", 1025: "1025 bytes", 1536 << 10: "1536 KiB", 1 << 30: "1 GiB", 1 << 40: "1024 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 250 * time.Millisecond: "250ms", 20 * time.Second: "20s", 10 * time.Hour: "10h", 10 * time.Minute: "10m", 90 * time.Second: "1m30s",
		720 * time.Hour: "720h", time.Hour + 20*time.Second: "1h0m20s", time.Hour + 30*time.Minute: "1h30m",
	} {
		if got := Time(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}
