package sandbox

import (
	"context"
	"os"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"golang.org/x/sys/unix"
)

// direct is the maker that has libcontainer build a container for each sandbox.
type direct struct{ host *Host }

// start has libcontainer build the container and execute init (pid1/init.c) in it.
func (d direct) start(ctx context.Context, c *sandbox, theirs *os.File) error {
	h := d.host
	c.faults = faultsOf(h, false, c.spec.ID)
	name := "_" + c.ids.String()                  // unique until the ids are released
	c.group = h.cgroups.Group(c.in.elem(name)...) // libcontainer makes the cgroup
	trees, err := c.rootTrees()
	if err == nil {
		err = c.staging.ShowRoot(trees)
	}
	trees.Release()
	if err != nil {
		return step("root", err)
	}
	config := c.containerConfig()
	faultyConfig(c.faults, config)
	limits := config.Rlimits
	closeNamespaces, err := giveAway(config, c.ids.root)
	if err != nil {
		return step("container", err)
	}
	defer closeNamespaces()
	container, err := libcontainer.Create(c.in.containers(), name, config)
	if err != nil {
		return step("container", err)
	}
	process := &libcontainer.Process{
		Args:       []string{"/proc/self/exe", pid1.InitArg}, // by InitArg the program knows that it is init (pid1/init.c)
		Env:        []string{"HOME=/"},                       // without it libcontainer reads the home directory from /etc/passwd
		Cwd:        "/",
		Stdin:      c.pipes.inside[0],
		Stdout:     c.pipes.inside[1],
		Stderr:     c.pipes.inside[2],
		ExtraFiles: []*os.File{theirs}, // the first extra file is descriptor 3: CONTROL_FD in pid1/wire.h
		Init:       true,
	}
	// Before Run: if Run fails, destroy needs free to remove libcontainer's state.
	c.init = &initProcess{filters: 1, free: func() error { // the script's filter; init loads another one later
		_, _ = process.Wait() // reaps init, if it ran
		return container.Destroy()
	}}
	// Init reads the filters first. The socket's buffer holds them until init runs.
	if err := c.control.Write(pid1.FrameFilters, pid1.EncodeFilters(h.filters, c.spec.Limits.OpenFiles, limits)); err != nil {
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
	theirs.Close() // so that a read reports init's end
	// libcontainer made init the owner of the pipes.
	if err := c.pipes.giveTo(c.ids.script()); err != nil {
		return step("pipes", err)
	}
	// The sandbox has its own copy of the root now.
	if err := c.staging.HideRoot(); err != nil {
		return step("root", err)
	}
	return c.expectFirst()
}

// find sets pid and pidfd of a running container's init.
func (i *initProcess) find(process *libcontainer.Process) error {
	pid, err := process.Pid()
	if err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(pid, 0) // the daemon has not reaped init, so no other process has its pid
	if err != nil {
		return err
	}
	return i.open(pid, pidfd)
}

// runPatience is how long libcontainer may run on after a start is canceled. If the
// daemon kills the first stages earlier, they leave children whose pids libcontainer has
// not reported, and the daemon has to reap those.
const runPatience = 2 * time.Second

// killOnCancel makes a hanging start fail: runPatience after ctx is canceled it kills the
// processes of the sandbox's cgroup, and again every 10 ms, because libcontainer may fork
// more. The returned func ends the watch and reaps the killed processes. The caller must call
// it, also after a failed start.
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
					_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // unless libcontainer reaped it
				}
				return
			case <-time.After(wait):
			}
			pids, _ := c.group.Pids()
			for _, pid := range pids {
				killed[pid] = true
			}
			_ = c.group.Kill() // the cgroup may not exist yet
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
