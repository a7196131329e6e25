package durable

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
)

// WithSum returns data after a line with its SHA-256 in hex. JSON alone notices few changed bits: with one in a name, a
// field keeps its zero value, and a list seems to be empty.
func WithSum(data []byte) []byte {
	sum := sha256.Sum256(data)
	return slices.Concat(hex.AppendEncode(nil, sum[:]), []byte{'\n'}, data)
}

// Checked returns the data in a result of WithSum, or an error if it has changed since.
func Checked(withSum []byte) ([]byte, error) {
	sum, data, found := bytes.Cut(withSum, []byte{'\n'})
	if got := sha256.Sum256(data); !found || hex.EncodeToString(got[:]) != string(sum) {
		return nil, errors.New("checksum differs")
	}
	return data, nil
}
