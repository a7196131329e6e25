package executor

import "testing"

// A hash is the same for the same data of the same purpose, by the same daemon.
func TestKeyedHash(t *testing.T) {
	x, other := &Executor{hashKey: []byte("one key of this daemon, 32 bytes")}, &Executor{hashKey: []byte("another daemon's, of 32 bytes...")}
	one := x.KeyedHash("audit", []byte("data"))
	if len(one) != 64 || one != x.KeyedHash("audit", []byte("data")) {
		t.Errorf("got %s, and then %s", one, x.KeyedHash("audit", []byte("data")))
	}
	for name, hash := range map[string]string{
		"other data":        x.KeyedHash("audit", []byte("date")),
		"other purpose":     x.KeyedHash("other", []byte("data")),
		"part of a purpose": x.KeyedHash("audi", []byte("t data")),
		"other daemon":      other.KeyedHash("audit", []byte("data")),
	} {
		if hash == one {
			t.Errorf("%s has the same hash", name)
		}
	}
}
