package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"
)

// direct is the maker that has libcontainer build a container for each sandbox.
type direct struct{ host *Host }

// start has libcontainer build the container and execute our init in it.
func (d direct) start(ctx context.Context, c *sandbox, theirs *os.File) error {
	h := d.host
	c.faults = h.faults.of(false, c.spec.ID)
	name := "_" + c.ids.String()                   // unique until the ids are free again
	c.group = h.cgroups.group(h.groupName(), name) // libcontainer makes it
	trees, err := c.rootTrees(c.spec.Root)
	if err == nil {
		err = c.staging.showRoot(trees)
	}
	trees.close()
	if err != nil {
		return step("root", err)
	}
	config := c.containerConfig()
	c.faults.ask(config)
	container, err := libcontainer.Create(h.containers(), name, config)
	if err != nil {
		return step("container", err)
	}
	process := &libcontainer.Process{
		Args:       []string{"/proc/self/exe", initArg},
		Env:        []string{"HOME=/"}, // libcontainer would look it up
		Cwd:        "/",
		Stdin:      c.pipes.inside[0],
		Stdout:     c.pipes.inside[1],
		Stderr:     c.pipes.inside[2],
		ExtraFiles: []*os.File{theirs},
		Init:       true,
	}
	c.init = &initProcess{filters: 1, free: func() error { // the script's filter; init loads its own later
		_, _ = process.Wait() // reaps, if it ran
		return container.Destroy()
	}}
	// Init reads the filters first. The socket's buffer holds them until then.
	if err := c.control.write(frameFilters, encodeFilters(h.filters, c.spec.Limits.OpenFiles)); err != nil {
		return step("init", err)
	}
	stop := c.killOnCancel(ctx)
	err = container.Run(process)
	stop()
	if err != nil {
		return step("container", err)
	}
	if err := c.init.find(process); err != nil {
		return step("container", err)
	}
	theirs.Close() // so that its end is seen
	// libcontainer made init the owner of the pipes.
	if err := c.pipes.giveTo(c.ids.script()); err != nil {
		return step("pipes", err)
	}
	// The sandbox has its own copy of the root now.
	if err := c.staging.hideRoot(); err != nil {
		return step("root", err)
	}
	return c.expectFirst()
}

// find sets pid and pidfd, of a container that runs.
func (i *initProcess) find(process *libcontainer.Process) error {
	pid, err := process.Pid()
	if err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(pid, 0) // init is our child and not reaped, so pid is still its own
	if err != nil {
		return err
	}
	return i.open(pid, pidfd)
}

// root is where showRoot mounts the root for libcontainer, and devices its /dev.
func (st *staging) root() string    { return filepath.Join(st.dir, "root") }
func (st *staging) devices() string { return filepath.Join(st.dir, "dev") }

// showRoot mounts a root for libcontainer, which takes directories.
func (st *staging) showRoot(l *mountList) error {
	if _, err := makeDir(st.dir, "root"); err != nil {
		return err
	}
	for i, tree := range l.trees {
		target := st.root() + l.targets[i]
		if l.targets[i] == "/dev" {
			target = st.devices()
		}
		if err := attach(tree, target); err != nil {
			return err
		}
	}
	return nil
}

// hideRoot undoes showRoot. A new mount namespace is a copy of the daemon's: each mount
// there makes the copy slower.
func (st *staging) hideRoot() error {
	if err := detach(st.root()); err != nil {
		return err
	}
	return detach(st.devices())
}

// runPatience is how long libcontainer may take to notice by itself that it is
// no longer wanted. It is not disturbed before: killed in its first stages it
// leaves children to us that it has not told anybody about.
const runPatience = 2 * time.Second

// killOnCancel makes a start that hangs fail some time after it is canceled,
// by killing what is in the sandbox's cgroup. The returned func ends the watch
// and reaps what was killed.
func (c *sandbox) killOnCancel(ctx context.Context) func() {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		killed := map[int]bool{}
		for wait := runPatience; ; wait = 10 * time.Millisecond {
			select {
			case <-done:
				for pid := range killed {
					_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // unless libcontainer did
				}
				return
			case <-time.After(wait):
			}
			pids, _ := c.group.pids()
			for _, pid := range pids {
				killed[pid] = true
			}
			_ = c.group.kill() // the cgroup may not be there yet
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
