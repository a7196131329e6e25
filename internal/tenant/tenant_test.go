package tenant

import (
	"fmt"
	"sync"
	"testing"
)

func TestSeesShared(t *testing.T) {
	for _, tt := range []struct {
		patterns []string
		name     string
		want     bool
	}{
		{nil, "calculator", true},
		{nil, "team/calculator", true},
		{[]string{}, "calculator", false},
		{[]string{"calc*"}, "calculator", true},
		{[]string{"calc*"}, "team/calculator", false},
		{[]string{"*"}, "team/calculator", false},
		{[]string{"pdf", "team/*"}, "team/calculator", true},
		{[]string{"pdf", "team/*"}, "pdf-forms", false},
		{[]string{"[a"}, "a", false}, // not a pattern
	} {
		if got := (&Tenant{SharedSkills: tt.patterns}).SeesShared(tt.name); got != tt.want {
			t.Errorf("%q, %s: got %v", tt.patterns, tt.name, got)
		}
	}
	if CheckPattern("team/*") != nil || CheckPattern("[a") == nil {
		t.Error("CheckPattern judges differently from path.Match")
	}
}

func TestSingleIsTheTenantOfEverybody(t *testing.T) {
	one := &Tenant{Name: "default"}
	s := Single(one)
	for _, name := range []string{"default", "acme", ""} {
		if got, ok := s.Get(name); !ok || got != one {
			t.Errorf("%q: got %v, %v", name, got, ok)
		}
	}
	if all := s.All(); !s.IsSingle() || len(all) != 1 || all[0] != one {
		t.Errorf("got %v", all)
	}
}

func TestSetIsOrderedAndRefusesUnknownNames(t *testing.T) {
	s := New(&Tenant{Name: "b"}, &Tenant{Name: "a"}, &Tenant{Name: "c"})
	names := ""
	for _, one := range s.All() {
		names += one.Name
	}
	if names != "abc" || s.IsSingle() {
		t.Errorf("got %s", names)
	}
	if got, ok := s.Get("default"); ok {
		t.Errorf("default: got %v", got)
	}
	s.Replace(&Tenant{Name: "a"})
	if _, ok := s.Get("b"); ok {
		t.Error("b is still there")
	}
}

// Readers see one generation of tenants, never a mixture: All gives tenants of equal weight.
func TestReplaceIsAtomic(t *testing.T) {
	generation := func(n int) (list []*Tenant) {
		for i := range 50 {
			one := &Tenant{Name: fmt.Sprint("t", i)}
			one.Quota.Weight = n
			list = append(list, one)
		}
		return list
	}
	s := New(generation(0)...)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				all := s.All()
				for _, one := range all {
					if one.Quota.Weight != all[0].Quota.Weight {
						t.Errorf("%s has weight %d, %s has %d", one.Name, one.Quota.Weight, all[0].Name, all[0].Quota.Weight)
						return
					}
				}
			}
		})
	}
	for n := range 1000 {
		s.Replace(generation(n)...)
	}
	close(done)
	readers.Wait()
}
