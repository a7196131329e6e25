package budget

import "time"

// gRPC takes an answer of any size at once and keeps it until the client's flow control lets it pass. The handler
// has returned by then, and its request counts no more. So an answer counts for itself, until gRPC has
// written it or the connection is closed.

// An Outbound is an answer that gRPC has not written yet. Its bytes count until Done. A nil Outbound, of a call whose
// connection has no Meter, counts nothing.
type Outbound struct {
	conn *Conn
	who  caller
	size int64     // bytes
	last time.Time // when gRPC last wrote a part of it; guarded by the budget's mu
}

// Answer counts an answer of n bytes. If the budget has no room for it, Answer looks for answers that have stalled,
// and returns a FullError. If must is set, it counts the answer all the same.
func (in *Intake) Answer(n int64, must bool) (*Outbound, error) {
	if in == nil {
		return nil, nil
	}
	in.mu.Lock()
	o := &Outbound{conn: in.conn, who: in.who, size: n}
	in.mu.Unlock()
	taken := in.take(o.who, n)
	if !taken && !must {
		return nil, &FullError{in.limit}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if !taken {
		in.add(o.who, n)
	}
	if o.conn.closed { // gRPC won't take the answer
		in.add(o.who, -n)
		return o, nil
	}
	if in.outbound[o.conn] == nil {
		in.outbound[o.conn] = map[*Outbound]struct{}{}
	}
	in.outbound[o.conn][o] = struct{}{}
	o.last = time.Now()
	return o, nil
}

// Wrote notes that gRPC has written a part of the answer, so it has not stalled.
func (o *Outbound) Wrote() {
	if o == nil {
		return
	}
	b := o.conn.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	o.last = time.Now()
}

// Done says that gRPC holds the answer no more. Further calls of Done do nothing.
func (o *Outbound) Done() {
	if o == nil {
		return
	}
	b := o.conn.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.outbound[o.conn]
	if _, counted := of[o]; !counted {
		return
	}
	b.add(o.who, -o.size)
	if delete(of, o); len(of) == 0 {
		delete(b.outbound, o.conn)
	}
}

// Close closes the connection. Its answers count no more: gRPC does not free those that it has begun to write.
func (m *Conn) Close() error {
	b := m.budget
	b.mu.Lock()
	m.closed = true
	for o := range b.outbound[m] {
		b.add(o.who, -o.size)
	}
	delete(b.outbound, m)
	b.mu.Unlock()
	return m.Conn.Close()
}

// anyStalled reports whether one of a connection's answers has stalled. The budget's mu is held.
func anyStalled(answers map[*Outbound]struct{}) bool {
	for o := range answers {
		if time.Since(o.last) >= stalledAfter {
			return true
		}
	}
	return false
}
