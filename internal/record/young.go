package record

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Most executions are short and print little. A row, the row's changes and a file
// cost each of them more than all else that the record does, so an execution begins
// young: what its row will say and then its spool are in an extent of the arena,
// from where an Open takes them after a crash, and in memory. It gets
//
//   - its row when it has ended, together with others that have and with its spool
//     beside it; before that if somebody asks what only the database answers, if it
//     is older than youngAge, or if it has an idempotency key, whose claim the row is;
//   - its spool in a file of its own when an extent has no more room for it.
//
// Whoever asks about it meanwhile is answered from memory, or waits for its row.

const (
	// youngAge is how old an execution gets without a row.
	youngAge = time.Second
	// gatherTime is how long an execution that has ended waits for others, to get
	// their rows in one transaction.
	gatherTime = 20 * time.Millisecond
	// maxGathered bounds how many have ended and have no row: the next one to end
	// waits for the transaction.
	maxGathered = 1024
	// rowsBatch bounds how many rows one transaction adds, so that others get their
	// turn.
	rowsBatch = 128
)

// An extent is youngMagic, the length of a row and its checksum, uint32 and little
// endian, the row, and then a spool.
const (
	youngMagic = "young 1\n"
	youngHead  = len(youngMagic) + 8
)

// placing says whether an execution has its row.
type placing int

const (
	noRow     placing = iota
	rowComing         // a transaction is about it: who wants to change it waits
	hasRow
)

// appendRow appends what a row says of x from the beginning.
func appendRow(b []byte, n int64, x *Execution) []byte {
	b = binary.AppendVarint(b, n)
	b = binary.AppendVarint(b, nanos(x.Created))
	for _, s := range []string{x.ID, x.Tenant, x.Principal, x.Skill, x.Digest, x.SourceKind, x.Script, x.Key} {
		b = appendBytes(b, s)
	}
	b = appendBytes(b, x.RequestHash)
	b = appendBytes(b, x.Detail)
	for key, value := range x.Labels {
		b = appendBytes(appendBytes(b, key), value)
	}
	return b
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeRow is the reverse of appendRow.
func decodeRow(b []byte) (n int64, x Execution, err error) {
	number := func() (n int64) {
		var size int
		if n, size = binary.Varint(b); size <= 0 {
			err = badFrame("row is cut short")
			return 0
		}
		b = b[size:]
		return n
	}
	text := func() []byte {
		length, size := binary.Uvarint(b)
		if size <= 0 || length > uint64(len(b)-size) {
			err, b = badFrame("row is cut short"), nil
			return []byte{}
		}
		s := b[size : size+int(length)]
		b = b[size+int(length):]
		return slices.Clone(s)
	}
	n = number()
	x.Created = instant(number())
	for _, s := range []*string{&x.ID, &x.Tenant, &x.Principal, &x.Skill, &x.Digest, &x.SourceKind, &x.Script, &x.Key} {
		*s = string(text())
	}
	x.RequestHash, x.Detail = text(), text()
	for err == nil && len(b) > 0 {
		if x.Labels == nil {
			x.Labels = map[string]string{}
		}
		key := string(text())
		x.Labels[key] = string(text())
	}
	if err == nil && !validID(x.ID) {
		err = badFrame(fmt.Sprintf("%q is not an execution's id", x.ID))
	}
	return n, x, err
}

// newExtent is how an extent begins: all before the spool. It is nil if that leaves
// too little room for one.
func newExtent(n int64, x *Execution, first []byte) []byte {
	size := len(x.Detail) + len(first)
	for key, value := range x.Labels {
		size += len(key) + len(value)
	}
	if size > extentBytes/4 {
		return nil
	}
	b := make([]byte, youngHead, youngHead+size+512)
	b = appendRow(b, n, x)
	if len(b)+len(first) > extentBytes/2 {
		return nil
	}
	copy(b, youngMagic)
	binary.LittleEndian.PutUint32(b[len(youngMagic):], uint32(len(b)-youngHead))
	binary.LittleEndian.PutUint32(b[len(youngMagic)+4:], crc32.Checksum(b[youngHead:], castagnoli))
	return b
}

// readExtent takes an extent apart. ok is false if there is no execution in it.
func readExtent(b []byte) (n int64, x Execution, spool []byte, ok bool) {
	if len(b) < youngHead || string(b[:len(youngMagic)]) != youngMagic {
		return 0, Execution{}, nil, false
	}
	length := int64(binary.LittleEndian.Uint32(b[len(youngMagic):]))
	sum := binary.LittleEndian.Uint32(b[len(youngMagic)+4:])
	if length > int64(len(b)-youngHead) {
		return 0, Execution{}, nil, false
	}
	row, spool := b[youngHead:youngHead+int(length)], b[youngHead+int(length):]
	if crc32.Checksum(row, castagnoli) != sum {
		return 0, Execution{}, nil, false
	}
	n, x, err := decodeRow(row)
	return n, x, spool, err == nil
}

// beginYoung writes the extent at l.extent, at once: head, and a spool with its first
// event.
func (l *Log) beginYoung(head []byte, at time.Time, first []byte) error {
	putFrame(&l.head, Event{Seq: 1, Time: at, Kind: KindHeader}, first, crc32.Checksum(first, castagnoli))
	l.base = int64(len(head))
	l.mem = make([]byte, 0, 1024+len(first))
	l.mem = append(append(append(l.mem, spoolMagic...), l.head[:]...), first...)
	if err := l.store.arena.write([][]byte{head, l.mem}, l.extent); err != nil {
		return l.failure(err)
	}
	l.marks.add(1, int64(len(spoolMagic)))
	l.seq, l.size = 1, int64(len(l.mem))
	return nil
}

// isYoung reports whether the spool is in the arena. l.mu is held.
func (l *Log) isYoung() bool { return l.mem != nil }

// putYoung writes a frame behind the spool. l.mu is held.
func (l *Log) putYoung(data []byte) error {
	if l.base+l.size+frameSize+int64(len(data)) > extentBytes {
		return errNoSpool
	}
	if err := l.store.arena.write([][]byte{l.head[:], data}, l.extent+l.base+l.size); err != nil {
		return err
	}
	// Readers have what comes before, and it stays as it is.
	l.mem = append(append(l.mem[:l.size], l.head[:]...), data...)
	return nil
}

// makeRoom sees to it that a frame with so much data has room: a young spool that has
// none in its extent moves to a file. l.mu is held, and given up for a while.
func (l *Log) makeRoom(data int) error {
	if !l.isYoung() || l.base+l.size+frameSize+int64(data) <= extentBytes {
		return nil
	}
	if err := l.needRow(); err != nil {
		return err
	}
	if !l.isYoung() { // meanwhile somebody else did it, or it has ended
		return nil
	}
	f, err := os.OpenFile(l.store.spoolPath(l.id), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(l.mem[:l.size], 0)
	if err == nil {
		// From here on the file counts.
		err = l.leaveArena()
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	l.f, l.mem = f, nil
	return nil
}

// leaveArena gives the extent back. l.mu is held.
func (l *Log) leaveArena() error { return l.store.arena.give(l.extent, l.base+l.size) }

// awaitRow waits while a transaction is about the row. l.mu is held, and given up
// meanwhile.
func (l *Log) awaitRow() {
	for l.placed == rowComing {
		l.placing.Wait()
	}
}

// needRow sees to it that there is a row. l.mu is held, and given up for a while.
func (l *Log) needRow() error {
	l.awaitRow()
	if l.placed == hasRow {
		return nil
	}
	p := l.leave()
	l.mu.Unlock()
	err := l.store.insertRows(context.Background(), []leaving{p})
	l.mu.Lock()
	return err
}

// leaving is a young execution as it gets its row.
type leaving struct {
	l     *Log
	x     Execution
	first []byte // the header event's data
	spool []byte // nil: it has not ended
	index []byte
}

// leave announces a row. l.mu is held; the row is inserted without it.
func (l *Log) leave() leaving {
	l.placed = rowComing
	p := leaving{l: l, x: l.x, first: l.first}
	p.x.LastSeq = l.seq
	if l.state == logEnded {
		p.spool, p.first, p.index = l.mem[:l.size], nil, l.marks.encode()
	}
	return p
}

// insertRows gives executions their rows, at once or not at all, and says so to
// those who wait. Of those that have ended it frees all else.
func (s *Store) insertRows(ctx context.Context, batch []leaving) error {
	err := s.write(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
		for _, p := range batch {
			if _, err := insert(ctx, tx, p.l.row, &p.x, p.first, p.spool, p.index); err != nil {
				return err
			}
		}
		return nil
	})
	for _, p := range batch {
		p.l.arrive(p, err)
	}
	return err
}

// arrive says what became of the row.
func (l *Log) arrive(p leaving, err error) {
	l.mu.Lock()
	l.placed, l.first = hasRow, nil
	if err != nil {
		l.placed, l.first = noRow, p.first
	}
	l.placing.Broadcast()
	ended := l.state == logEnded
	l.mu.Unlock()
	if err != nil {
		return
	}
	l.store.forgetYoung(l)
	if ended {
		l.over()
	}
}

// over frees what an ended execution with a row has. Readers have its memory.
func (l *Log) over() {
	l.mu.Lock()
	young := l.isYoung()
	l.mu.Unlock()
	if young {
		if err := l.leaveArena(); err != nil {
			l.store.log.Error("record: a place in the arena can't be used again", "execution", l.id, "err", err)
		}
	}
	l.store.unregister(l)
}

// settle gives a row to every execution that has none, so that the database can be
// asked. Those that can't have one are left out of what it says.
func (s *Store) settle(ctx context.Context) {
	if err := s.gather(ctx, func(*Log) bool { return true }); err != nil {
		s.log.Error("record: executions without a row", "err", err)
	}
	for _, l := range s.youngLogs() { // whose rows others are about
		l.mu.Lock()
		l.awaitRow()
		l.mu.Unlock()
	}
}

// settleOne is settle for one execution.
func (s *Store) settleOne(ctx context.Context, id string) {
	if s.liveLog(id) != nil {
		s.settle(ctx)
	}
}

// gather gives a row to each young execution that ready says, which is called with
// the log's lock held.
func (s *Store) gather(ctx context.Context, ready func(*Log) bool) error {
	var all []leaving
	for _, l := range s.youngLogs() {
		l.mu.Lock()
		if l.placed == noRow && (l.state == logOpen || l.state == logEnded) && ready(l) {
			all = append(all, l.leave())
		}
		l.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b leaving) int { return int(min(max(a.l.row-b.l.row, -1), 1)) })
	var errs []error
	for batch := range slices.Chunk(all, rowsBatch) {
		errs = append(errs, s.insertRows(ctx, batch))
	}
	return errors.Join(errs...)
}

// youngLogs returns the logs without a row.
func (s *Store) youngLogs() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.young))
}

// addYoung and forgetYoung say who has no row.
func (s *Store) addYoung(l *Log) {
	s.mu.Lock()
	s.young[l] = true
	first := !s.aging
	s.aging = true
	s.mu.Unlock()
	if first {
		poke(s.born)
	}
}

// isAging reports whether there are young executions. If not, the next one says so.
func (s *Store) isAging() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aging = len(s.young) > 0
	return s.aging
}

func (s *Store) forgetYoung(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.young, l)
	if l.counted {
		s.gathered--
		l.counted = false
	}
}

// gone counts an execution that has ended without a row.
func (s *Store) gone(l *Log) {
	s.mu.Lock()
	if s.young[l] {
		s.gathered++
		l.counted = true
	}
	s.mu.Unlock()
	poke(s.died)
}

// gatherIfMany gives rows to those that have ended if they are too many.
func (s *Store) gatherIfMany() {
	s.mu.Lock()
	many := s.gathered > maxGathered
	s.mu.Unlock()
	if many {
		s.gatherEnded()
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *Store) gatherEnded() {
	err := s.gather(context.Background(), func(l *Log) bool { return l.state == logEnded })
	if err != nil {
		s.log.Error("record: executions have ended and have no row", "err", err)
	}
}

// keep gives executions their rows in time, until the store is closed.
func (s *Store) keep() {
	var gathered, grown <-chan time.Time
	for {
		select {
		case <-s.closing:
			return
		case <-s.died:
			if gathered == nil {
				gathered = time.After(gatherTime)
			}
		case <-gathered:
			gathered = nil
			s.gatherEnded()
		case <-s.born:
			grown = time.After(youngAge)
		case now := <-grown:
			grown = nil
			err := s.gather(context.Background(), func(l *Log) bool { return l.state == logEnded || now.Sub(l.made) >= youngAge })
			if err != nil {
				s.log.Error("record: executions without a row", "err", err)
			}
			if s.isAging() {
				grown = time.After(youngAge)
			}
		}
	}
}

// known returns what an execution's row says or will say, if the log knows.
func (l *Log) known() (x Execution, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.x.ID == "" || l.state == logFailed {
		return Execution{}, false
	}
	x = l.x
	x.LastSeq, x.Labels = l.seq, maps.Clone(x.Labels)
	return x, true
}

// knownOf returns what the log of an execution knows of it. known is false if the
// database has to be asked; a log of another tenant's is as none.
func (s *Store) knownOf(tenant, id string) (l *Log, x Execution, known bool, err error) {
	if l = s.liveLog(id); l == nil {
		return nil, Execution{}, false, nil
	}
	if x, known = l.known(); known && x.Tenant != tenant {
		err = ErrNotFound
	}
	return l, x, known, err
}

// openYoung opens the arena, and makes of what a crash left in it what older versions
// of this package would have left: a row and a spool in a file each. What can't be
// made so stays where it is, until the next time.
func (s *Store) openYoung(ctx context.Context) error {
	var err error
	if s.arena, err = openArena(filepath.Join(s.config.Dir, youngName)); err != nil {
		return err
	}
	fi, err := s.arena.f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s: it is no file but %s", s.arena.f.Name(), fi.Mode().Type())
	}
	left := false
	extent := make([]byte, extentBytes)
	for at := int64(0); at < fi.Size(); at += extentBytes {
		n, err := s.arena.f.ReadAt(extent, at)
		if err != nil && err != io.EOF {
			return err
		}
		number, x, spool, ok := readExtent(extent[:n])
		if !ok {
			continue
		}
		if err := s.grow(ctx, number, x, spool); err != nil {
			if isCorrupt(err) {
				return err
			}
			s.log.Error("record: an execution of the last process can't be taken over; the next start tries again", "execution", x.ID, "err", err)
			left = true
		}
	}
	if left {
		s.arena.next = (fi.Size() + extentBytes - 1) / extentBytes * extentBytes
		return nil
	}
	// The database has executions: an arena of no size would say that it has none.
	size := int64(0)
	if s.lastRow > 0 {
		size = extentBytes
	}
	return errors.Join(s.arena.f.Truncate(0), s.arena.f.Truncate(size))
}

// grow gives the row and the spool of an extent their places.
func (s *Store) grow(ctx context.Context, n int64, x Execution, spool []byte) error {
	at, err := scanFrames(bytes.NewReader(spool), int64(len(spool)))
	if err != nil {
		return err
	}
	if at.seq == 0 || !bytes.HasPrefix(spool, []byte(spoolMagic)) {
		return nil // nobody was told of it
	}
	has, err := getRow(ctx, s.db.queries, "id = ?", x.ID)
	switch {
	case err == nil && has.State == Ended:
		return nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	}
	// The row first: a file that the database knows nothing of would look as if that
	// had been lost.
	if has == nil {
		x.State, x.LastSeq, x.Outcome = Queued, at.seq, []byte{}
		if !at.started.IsZero() {
			x.State, x.Started = Running, at.started
		}
		err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := insert(ctx, tx, n, &x, at.header, nil, nil)
			return err
		})
		if err != nil {
			return err
		}
		s.lastRow, s.lastID = max(s.lastRow, n), max(s.lastID, x.ID)
	}
	return os.WriteFile(s.spoolPath(x.ID), spool[:at.size], 0o600)
}
