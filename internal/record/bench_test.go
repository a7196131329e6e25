package record

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

// An execution's whole cost: its claim synced, started, ended.
func BenchmarkExecution(b *testing.B) {
	s := openStore(b, Config{})
	outcome := make([]byte, 600)
	for b.Loop() {
		l := create(b, s, Execution{Skill: "hello", Key: NewID(), Labels: map[string]string{"a": "b"}, Detail: outcome})
		if err := l.Started(b.Context(), start, nil); err != nil {
			b.Fatal(err)
		}
		if err := l.End(b.Context(), "EXITED", outcome, start); err != nil {
			b.Fatal(err)
		}
	}
}

// Creation alone, with nothing and with a million executions before it.
func BenchmarkCreateAfterMillion(b *testing.B) {
	s := openStore(b, Config{})
	creations := func(when string) {
		for name, key := range map[string]func() string{"": func() string { return "" }, " with key": NewID} {
			b.Run("create "+when+name, func(b *testing.B) {
				for b.Loop() {
					l := create(b, s, Execution{Skill: "hello", Key: key(), Labels: map[string]string{"a": NewID()}})
					end(b, l, "EXITED", time.Now())
				}
			})
		}
	}
	creations("first")
	manyRows(b, s, 1_000_000)
	creations("after")
	for name, f := range map[string]Filter{
		"all": {}, "skill": {Skill: "skill 3"}, "live": {States: []State{Running}}, "label": {Labels: map[string]string{"l": "7"}},
	} {
		b.Run("list "+name, func(b *testing.B) {
			f.Tenant = "a"
			for b.Loop() {
				if _, _, err := s.List(b.Context(), f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("sweep", func(b *testing.B) {
		s.config.MaxAge, s.config.MaxBytes = time.Since(start)+time.Hour, 1<<50
		for b.Loop() {
			if _, _, err := s.Sweep(b.Context(), time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// manyRows adds rows of ended executions without their spools.
func manyRows(b *testing.B, s *Store, n int) {
	b.Helper()
	_, err := s.db.states.Exec(fmt.Sprintf(`
		WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < %d)
		INSERT INTO executions (n, id, tenant, principal, skill, digest, source_kind, script, key, request_hash, state, created, ended,
			ending, spool_bytes, row_bytes, labels, detail, header)
		SELECT n, 'e-' || n, 'a', 'p', 'skill ' || (n %% 10), 'sha256:00', 'script', 'x.py', 'key ' || n, x'00', 3, %d + n, %[2]d + n,
			'EXITED', 1000, 500, '{}', zeroblob(500), x'' FROM i`, n, start.UnixNano()))
	if err == nil {
		_, err = s.db.states.Exec("INSERT INTO labels SELECT 'a', 'l', n % 100, n FROM executions")
	}
	if err != nil {
		b.Fatal(err)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := openStore(b, Config{})
			l := create(b, s, Execution{})
			data := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Append(Event{Kind: KindOutput, Stream: 1, Time: start, Data: data}); err != nil {
					b.Fatal(err)
				}
				if l.size > 1<<30 {
					b.StopTimer()
					l = create(b, s, Execution{})
					b.StartTimer()
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	s := openStore(b, Config{})
	const chunk, chunks = 64 << 10, 4096
	l := create(b, s, Execution{})
	for range chunks {
		if _, err := l.Append(Event{Kind: KindOutput, Data: make([]byte, chunk)}); err != nil {
			b.Fatal(err)
		}
	}
	end(b, l, "EXITED", start)
	for name, after := range map[string]uint64{"all": 0, "the last": chunks} {
		b.Run(name, func(b *testing.B) {
			if after == 0 {
				b.SetBytes(chunk * chunks)
			}
			for b.Loop() {
				r := newReader(b, s, "a", l.ID(), after)
				var err error
				for err == nil {
					_, err = r.Next(b.Context())
				}
				if err != io.EOF {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
}

// Another tenant's execution takes as long as one that does not exist.
func BenchmarkGetNothing(b *testing.B) {
	s := openStore(b, Config{})
	for range 1000 {
		end(b, create(b, s, Execution{Detail: make([]byte, 2000)}), "EXITED", start)
	}
	theirs := create(b, s, Execution{Tenant: "a", Detail: make([]byte, 2000)})
	for name, id := range map[string]string{"another tenant's": theirs.ID(), "nobody's": NewID()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Get(b.Context(), "b", id); !errors.Is(err, ErrNotFound) {
					b.Fatal(err)
				}
			}
		})
	}
}
