package sandbox

import "testing"

func openPrepared(t testing.TB) *Host {
	c := testConfig(t)
	c.Prepared = 4
	return openWith(t, c)
}

func TestPreparedTrue(t *testing.T) {
	h := openPrepared(t)
	for range 3 {
		got := run(t, h, Spec{Program: command("/usr/bin/true")}, "")
		if got.exit.End != Exited || got.exit.Code != 0 {
			t.Errorf("got %+v", got)
		}
	}
	noLeftovers(t, h)
}
