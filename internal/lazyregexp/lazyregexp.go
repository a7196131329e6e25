// Package lazyregexp compiles regular expressions at their first use. The programs of this module have more than a hundred
// in package variables, and a process uses few of them: compiled at the start, they would cost each daemon a megabyte of
// memory, and each command its time.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// A Regexp compiles its text at its first use. It has the methods of regexp.Regexp.
type Regexp struct {
	text     string
	once     sync.Once
	compiled *regexp.Regexp
}

// New returns the Regexp of a text. In a test it compiles the text at once, and panics if that fails, so that no wrong one
// waits for its first use.
func New(text string) *Regexp {
	r := &Regexp{text: text}
	if len(os.Args) > 0 && strings.HasSuffix(os.Args[0], ".test") {
		r.get()
	}
	return r
}

func (r *Regexp) get() *regexp.Regexp {
	r.once.Do(func() { r.compiled = regexp.MustCompile(r.text) })
	return r.compiled
}

func (r *Regexp) Match(b []byte) bool                    { return r.get().Match(b) }
func (r *Regexp) MatchString(s string) bool              { return r.get().MatchString(s) }
func (r *Regexp) FindString(s string) string             { return r.get().FindString(s) }
func (r *Regexp) FindStringIndex(s string) []int         { return r.get().FindStringIndex(s) }
func (r *Regexp) FindStringSubmatch(s string) []string   { return r.get().FindStringSubmatch(s) }
func (r *Regexp) FindAllString(s string, n int) []string { return r.get().FindAllString(s, n) }
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.get().FindAllStringSubmatch(s, n)
}
func (r *Regexp) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return r.get().FindAllStringSubmatchIndex(s, n)
}
func (r *Regexp) ReplaceAllString(s, to string) string       { return r.get().ReplaceAllString(s, to) }
func (r *Regexp) Find(b []byte) []byte                       { return r.get().Find(b) }
func (r *Regexp) FindAllSubmatch(b []byte, n int) [][][]byte { return r.get().FindAllSubmatch(b, n) }
func (r *Regexp) FindSubmatch(b []byte) [][]byte             { return r.get().FindSubmatch(b) }
func (r *Regexp) FindSubmatchIndex(b []byte) []int           { return r.get().FindSubmatchIndex(b) }
