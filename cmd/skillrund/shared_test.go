package main

import (
	"context"
	"errors"
	"sync"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// shared is one daemon for all tests that need only the default configuration and that look
// at nothing but their own skills and executions. The first of these tests starts it, and
// TestMain ends it.
var shared sharedDaemon

type sharedDaemon struct {
	once sync.Once
	d    *running
	all  *verdict // the daemon outlives the test that starts it
}

// startShared returns the shared daemon as t sees it.
func startShared(t testing.TB) *running {
	t.Helper()
	needsDaemon(t)
	shared.once.Do(func() {
		shared.all = &verdict{TB: t, ctx: context.Background()}
		done := make(chan struct{})
		go func() { // Fatal ends this goroutine
			defer close(done)
			shared.d = startDaemon(shared.all, "")
		}()
		<-done
	})
	if shared.d == nil {
		t.Fatal(shared.all.text())
	}
	mine := *shared.d
	mine.t = t
	return &mine
}

// addSkill writes a skill, see writeSkill, and waits until the daemon has it. No other test
// may write a skill of this name, and the daemon may not have one yet.
func (d *running) addSkill(name, frontMatter string, files map[string]string) {
	d.t.Helper()
	if sk, err := d.skills.GetSkill(d.t.Context(), &pb.GetSkillRequest{Skill: name}); err == nil {
		d.t.Fatalf("the daemon has a skill of this name already: %v", sk)
	}
	writeSkill(d.t, d.dir, name, frontMatter, files)
	d.reload(name)
}

// end checks that the tests left nothing in the daemon, and stops the daemon.
func (s *sharedDaemon) end() error {
	if s.all == nil {
		return nil
	}
	done := make(chan struct{})
	go func() { // Fatal ends this goroutine
		defer close(done)
		if s.d != nil {
			s.d.wantNothingLeft()
			s.d.wantNoProcess()
		}
	}()
	<-done
	s.all.cleanUp()
	if s.all.Failed() {
		return errors.New(s.all.text())
	}
	return nil
}
