package budget

import (
	"errors"
	"strings"
	"testing"
)

// beginOn begins a call on a connection that is closed when closed is.
func beginOn(t *testing.T, b *Budget) (m *Conn, in *Intake, closed chan struct{}) {
	t.Helper()
	closed = make(chan struct{})
	m = b.Meter(&played{sent: strings.NewReader(""), closed: closed})
	return m, Of(m.Begin(t.Context())), closed
}

func answer(t *testing.T, in *Intake, n int64, must bool) *Outbound {
	t.Helper()
	o, err := in.Answer(n, must)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func wantUsed(t *testing.T, b *Budget, want int64) {
	t.Helper()
	if used := b.Used(); used != want {
		t.Errorf("%d bytes are counted, want %d", used, want)
	}
}

func TestAnswersCount(t *testing.T) {
	b := newBudget(t, 1_000_000, 1_000_000)
	_, in, _ := beginOn(t, b)
	one := answer(t, in, 900_000, false)
	if _, err := in.Answer(900_000, false); !errors.As(err, new(*FullError)) {
		t.Errorf("got %v, want a FullError", err)
	}
	two := answer(t, in, 900_000, true)
	wantUsed(t, b, 1_800_000)
	one.Done()
	one.Done()
	wantUsed(t, b, 900_000)
	two.Done()
	wantUsed(t, b, 0)
	if len(b.outbound) > 0 {
		t.Errorf("%d connections have answers", len(b.outbound))
	}
}

func TestAnswersEndWithTheirConnection(t *testing.T) {
	b := newBudget(t, 1_000_000, 1_000_000)
	m, in, _ := beginOn(t, b)
	_, other, _ := beginOn(t, b)
	one := answer(t, in, 300_000, false)
	answer(t, in, 300_000, false)
	last := answer(t, other, 100_000, false)
	m.Close()
	wantUsed(t, b, 100_000)
	one.Done()
	for _, must := range []bool{false, true} {
		answer(t, in, 850_000, must).Done() // gRPC takes none of them
	}
	wantUsed(t, b, 100_000)
	last.Done()
	wantUsed(t, b, 0)
}

// A client that takes nothing of an answer loses its connection if the answer keeps others out. A client that takes
// parts of it keeps the connection.
func TestStalledAnswersMakeRoom(t *testing.T) {
	b := newBudget(t, 1_000_000, 1_000_000)
	slow, slowIn, _ := beginOn(t, b)
	_, in, closed := beginOn(t, b)
	wrote, stalled := answer(t, slowIn, 500_000, false), answer(t, in, 500_000, false)
	b.mu.Lock()
	for _, o := range []*Outbound{wrote, stalled} {
		o.last = o.last.Add(-stalledAfter)
	}
	b.mu.Unlock()
	wrote.Wrote()
	for range 2 {
		if b.take(caller{}, 500_000) {
			t.Fatal("there is room for another")
		}
	}
	<-closed
	b.mu.Lock()
	defer b.mu.Unlock()
	if slow.abandoned {
		t.Error("the connection of a client that reads is closed")
	}
}
