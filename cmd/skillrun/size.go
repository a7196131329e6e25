package main

import (
	"fmt"
	"strconv"
	"strings"
)

// size is a number of bytes on the command line: 1000, 64k, 512m, 1g, also KiB,
// MiB and GiB. A unit is a power of 1024, as for docker run.
type size uint64

func (s *size) Set(text string) error {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := strings.ToLower(text[len(number):])
	shift, ok := map[string]uint{
		"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30,
	}[unit]
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || n == 0 || n<<shift>>shift != n {
		return fmt.Errorf("want a size above 0 such as 64k, 512m or 1g")
	}
	*s = size(n << shift)
	return nil
}

func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return bytesText(uint64(*s))
}

func (*size) Type() string { return "size" }

// bytesText writes a number of bytes for people.
func bytesText(n uint64) string {
	value, unit := float64(n), ""
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	if unit == "" {
		return fmt.Sprintf("%d B", n)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + unit
}
