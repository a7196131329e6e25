// Package quantity writes numbers of bytes and durations for messages.
package quantity

import (
	"fmt"
	"strings"
	"time"
)

// Bytes has the largest binary unit that keeps the number whole: "1 GiB".
func Bytes(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	i := 0
	for n >= 1024 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return fmt.Sprintf("%d %s", n, units[i])
}

// Time is d.String without the parts that are zero: "720h" and not "720h0m0s".
func Time(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
