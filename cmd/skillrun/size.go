package main

import (
	"errors"
	"strings"

	"github.com/docker/go-units"
)

// size is a number of bytes on the command line, as docker run takes it: 1000, 64k, 512m,
// 1.5g, 2GiB. Every unit is a power of 1024.
type size uint64

// maxSize bounds a size: a conversion of a larger float64 to int64 differs between machines.
const maxSize = 1 << 60

// Set refuses 0, which the daemon would read as "not set".
func (s *size) Set(text string) error {
	n, err := units.RAMInBytes(text)
	if err != nil || n <= 0 || n > maxSize {
		return errors.New("want a size above 0 such as 64k, 512m or 1g")
	}
	*s = size(n)
	return nil
}

// String returns "" for 0, so that help shows no default (pflag.Value).
func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return bytesText(uint64(*s))
}

func (*size) Type() string { return "size" }

// bytesText writes a number of bytes for people, with at most one decimal: 1.5 MiB.
func bytesText(n uint64) string {
	text := units.CustomSize("%.1f %s", float64(n), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"})
	return strings.Replace(text, ".0 ", " ", 1)
}
