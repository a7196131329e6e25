package sandbox

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// teardown destroys a sandbox after its last process has ended. With a pool this happens
// after the answer: only empty directories, mounts and namespaces remain, and no process
// can reach them. bytes is the sandbox's peak of memory.
func (c *sandbox) teardown(bytes int64) {
	ids := c.in.ids.Load() // destroy may give them back
	destroy := func() {
		defer close(c.destroyed)
		if err := c.destroy(); err != nil {
			c.host.log().Error("a sandbox was not removed", "execution", c.spec.ID, "err", err)
		}
	}
	if ids.mayDefer() {
		deferred := func() {
			destroy()
			ids.deferred.Add(-1)
		}
		if c.host.pool.deferTeardown(bytes, deferred) {
			return
		}
		ids.deferred.Add(-1)
	}
	destroy()
}

// destroyPatience bounds how long the removal of a dead sandbox may take.
const destroyPatience = 5 * time.Second

// destroy kills the sandbox's processes and removes the sandbox. It releases the ids only
// if the removal succeeds; else no other sandbox of this instance gets them. It is called
// once for each sandbox, and accepts one whose build failed at any step.
func (c *sandbox) destroy() error {
	c.oom.Stop()
	if c.control != nil {
		c.control.File.Close() // init ends the sandbox, if it lives
	}
	if c.pipes != nil {
		c.pipes.close()
	}
	err := c.destroyInit()
	// The next sandbox with these ids has a cgroup of the same name.
	c.unremoved = c.group.Unremoved()
	if c.staging != nil {
		err = errors.Join(err, c.staging.Close())
	}
	if c.dir != "" {
		if rerr := unix.Rmdir(c.dir); rerr != nil && rerr != unix.ENOENT {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", c.dir, rerr))
		}
	}
	if err == nil && c.in != nil {
		if c.ids.root != 0 {
			c.in.ids.Load().release(c.ids)
		}
		c.host.groups.release(c.in)
	}
	return err
}

// destroyInit ends init and frees what its maker holds. The order matters: removeGroup kills
// init by its pidfd, and the maker's state can go only when no process is left.
func (c *sandbox) destroyInit() error {
	defer c.userns.Close() // nil: never opened
	defer c.device.close()
	defer closeFiles(c.held)
	if c.forked != nil {
		c.forked.Close()
	}
	if c.init == nil { // the maker failed before init ran; its cgroup may exist
		return c.group.RemoveSoon(destroyPatience)
	}
	if err := c.removeGroup(); err != nil {
		return err
	}
	if c.init.pidfd != nil {
		c.init.pidfd.Close()
	}
	if c.init.free == nil {
		return nil
	}
	return c.init.free()
}

// removeGroup kills the remaining processes and removes the cgroup.
func (c *sandbox) removeGroup() error {
	// Nearly always the cgroup is empty.
	if err := c.group.RemoveDirs(); err == nil {
		return nil
	}
	if c.init.pidfd != nil {
		// The kernel kills a PID namespace with its init.
		_ = c.init.kill()
		if err := c.group.RemoveSoon(destroyPatience); err == nil {
			return nil
		}
	}
	return c.group.Clear(destroyPatience)
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
