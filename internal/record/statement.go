package record

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A statement is one of the queries below with its arguments: each an int64, a string
// or a []byte. Statements are the changes that wait in the journal.
// A change is data and not a function, because it must survive in the journal.
type statement struct {
	query query
	args  []any
}

type query uint64

// The journal stores these numbers. If their meaning changes, package journal needs
// another magic. After a loss of power the execution of a statement may be missing: no
// query fails then.
const (
	addExecution query = iota
	addLabel
	addFrame
	setStarted
	setEnded
	setInFile
	deleteFrames
)

// Each can run a second time without a further effect: after a crash the journal may have
// statements that are in the database already.
var queries = [...]string{
	addExecution: insertExecution + " ON CONFLICT DO NOTHING",
	addLabel: `INSERT OR IGNORE INTO labels (tenant, key, value, execution)
		SELECT ?, ?, ?, n FROM executions WHERE n = ?`,
	addFrame:   "INSERT OR REPLACE INTO frames (execution, seq, data) SELECT n, ?2, ?3 FROM executions WHERE n = ?1",
	setStarted: "UPDATE executions SET state = 2, started = ?2 WHERE n = ?1 AND state = 1",
	setEnded: `UPDATE executions SET state = 3, ended = ?2, ending = ?3, outcome = ?4, last_seq = ?5, spool_bytes = ?6, spool_index = ?7,
		row_bytes = length(detail) + length(header) + length(?4) + length(?7) WHERE n = ?1`,
	setInFile:    "UPDATE executions SET in_file = 1 WHERE n = ?",
	deleteFrames: "DELETE FROM frames WHERE execution = ?",
}

const insertExecution = `
	INSERT INTO executions
		(n, id, tenant, principal, skill, digest, source_kind, script, key, request_hash, state, created, labels, detail, header, row_bytes)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, nullif(?9, ''), ?10, 1, ?11, ?12, ?13, ?14, length(?13) + length(?14))`

// startStatement records for row n that the program started at a time.
func startStatement(n int64, at time.Time) statement {
	return statement{setStarted, []any{n, nanos(at)}}
}

// endStatement records for row n the end e, and a spool of size bytes.
func endStatement(n int64, e Event, size int64, index []byte) statement {
	return statement{setEnded, []any{n, nanos(e.Time), e.End, blob(e.Data), int64(e.Seq), size, blob(index)}}
}

// runStatements runs statements in a transaction.
func runStatements(ctx context.Context, tx *sql.Tx, statements []statement) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, queries[s.query], s.args...); err != nil {
			return err
		}
	}
	return nil
}

// Each argument begins with one of these.
const (
	tagInt   = 'i' // a varint
	tagText  = 't' // a length and bytes
	tagBytes = 'b' // the same
)

// encodeStatements returns an entry for the journal: for each statement its query, the
// number of its arguments, and the arguments.
// Only types that SQLite has are encoded; any other is a mistake in this package, hence the
// panic.
func encodeStatements(statements []statement) []byte {
	var b []byte
	for _, s := range statements {
		b = binary.AppendUvarint(b, uint64(s.query))
		b = binary.AppendUvarint(b, uint64(len(s.args)))
		for _, arg := range s.args {
			switch v := arg.(type) {
			case int64:
				b = binary.AppendVarint(append(b, tagInt), v)
			case string:
				b = append(binary.AppendUvarint(append(b, tagText), uint64(len(v))), v...)
			case []byte:
				b = append(binary.AppendUvarint(append(b, tagBytes), uint64(len(v))), v...)
			default:
				panic(fmt.Sprintf("record: a statement's argument is a %T", arg))
			}
		}
	}
	return b
}

var errEntry = errors.New("entry of the journal is malformed")

// decodeStatements reverses encodeStatements. The statements share b.
func decodeStatements(b []byte) ([]statement, error) {
	d := decoder{b: b}
	var statements []statement
	for len(d.b) > 0 {
		s := statement{query: query(d.uvarint())}
		for n := d.uvarint(); n > 0 && !d.bad; n-- {
			s.args = append(s.args, d.arg())
		}
		if d.bad || s.query >= query(len(queries)) {
			return nil, errEntry
		}
		statements = append(statements, s)
	}
	return statements, nil
}

// decoder takes values from the front of b. bad is set once a value is missing.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	d.skip(n)
	return v
}

// skip drops n bytes. n is a result of encoding/binary: 0 or less means that the number is
// incomplete.
func (d *decoder) skip(n int) {
	if n <= 0 {
		d.b, d.bad = nil, true
		return
	}
	d.b = d.b[n:]
}

// arg takes one value. Its types are the ones of encodeStatements.
func (d *decoder) arg() any {
	if len(d.b) == 0 {
		d.bad = true
		return nil
	}
	tag := d.b[0]
	d.b = d.b[1:]
	switch tag {
	case tagInt:
		v, n := binary.Varint(d.b)
		d.skip(n)
		return v
	case tagText:
		return string(d.bytes())
	case tagBytes:
		return d.bytes()
	}
	d.bad = true
	return nil
}

// bytes takes a length and that many bytes. They share b, without room to append.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}
