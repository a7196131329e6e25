package main

import "context"

// compileVenvs compiles the modules of skills with a venv when they are imported, one skill after the other, until ctx
// ends. A skill that a tenant pushed is compiled after its first execution.
func (d *daemon) compileVenvs(ctx context.Context) {
	tried := map[string]bool{} // by digest
	for {
		changed, now := d.skills.Changed(), map[string]bool{}
		for _, sk := range d.skills.OfRoots() {
			now[sk.Digest] = true
			if tried[sk.Digest] || ctx.Err() != nil {
				continue
			}
			if !d.executor.CompileVenv(ctx, sk) {
				d.log.Warn("environments.bytes is full, so a venv is compiled after the first execution of its skill", "skill", sk.Name)
				return
			}
		}
		tried = now
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
