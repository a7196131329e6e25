package session

import (
	"fmt"
	"testing"
)

// BenchmarkUse is the part of the store in the time of an execution: with a session of 1,000 files and no
// change, and with one changed file. Release after a
// commit has a benchmark of its own: it comes before the outcome, so it is in the time of the execution, too.
func BenchmarkUse(b *testing.B) {
	for _, files := range []int{0, 1000} {
		s := newBench(b)
		id := s.create(Settings{})
		var c Change
		for i := range files {
			c.Files = append(c.Files, s.source(fmt.Sprintf("d%d/f%d", i%10, i), fmt.Sprint(i)))
		}
		_, err := s.try(id, c)
		s.must(err)
		b.Run(fmt.Sprintf("unchanged/files=%d", files), func(b *testing.B) {
			for b.Loop() {
				s.acquire(id, 0).Release()
			}
		})
		b.Run(fmt.Sprintf("one_changed/files=%d", files), func(b *testing.B) {
			n := 0
			for b.Loop() {
				b.StopTimer()
				n++
				c := s.change(fmt.Sprint("d1/changed=", n))
				b.StartTimer()
				w := s.acquire(id, 0)
				_, err := w.Commit(c)
				s.must(err)
				b.StopTimer()
				w.Release()
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("release/files=%d", files), func(b *testing.B) {
			n := 0
			for b.Loop() {
				b.StopTimer()
				n++
				w := s.acquire(id, 0)
				_, err := w.Commit(s.change(fmt.Sprint("d1/changed=r", n)))
				s.must(err)
				b.StartTimer()
				w.Release()
			}
		})
	}
}
