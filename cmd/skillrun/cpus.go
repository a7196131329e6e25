package main

import (
	"errors"
	"math"
	"strconv"
)

// cpus is a number of processors on the command line, 0.5 or 2, in thousandths. Set refuses
// only values that don't fit; the daemon checks the bounds.
type cpus uint32

// Set reads a decimal number and rounds it to thousandths. The condition is written so that NaN
// fails it, too.
func (c *cpus) Set(text string) error {
	n, err := strconv.ParseFloat(text, 64)
	milli := math.Round(n * 1000)
	if err != nil || !(milli >= 1 && milli <= math.MaxUint32) {
		return errors.New("want a number of processors above 0 such as 0.5 or 2")
	}
	*c = cpus(milli)
	return nil
}

// String returns "" for 0, so that help shows no default (pflag.Value).
func (c cpus) String() string {
	if c == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(c)/1000, 'f', -1, 64)
}

func (cpus) Type() string { return "number" }
