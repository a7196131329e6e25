package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// holdProgram opens and ends a connection, so its network works. Then it opens connections and keeps them.
const holdProgram = `
exec {server}<>/dev/tcp/` + serverAddress + `/` + greetPort + ` || exit 1
read -r -n 1 -u "$server" || exit 1
exec {server}>&-
for ((i = 0; i < $1; i++)); do
    exec {server}<>/dev/tcp/` + serverAddress + `/` + holdPort + ` || exit 1
    read -r -n 1 -u "$server" || exit 1
done
echo open
exec sleep 600
`

// Executions that hold connections in the row network-connection-memory, and connections of each. A
// sandbox may have 256.
const (
	holders    = 10
	heldByEach = 200
)

// manyNetworks runs many executions with a network at once. Each has opened one connection. It measures the
// memory of the tenant's helper.
func manyNetworks(r *run, rows rowSet) error {
	n := r.scale.sleeping
	return r.onInternet("networks", fmt.Sprintf("concurrency: {running: %d}\n", n+holders), func(_ *internet, d *daemon) error {
		clients, end, err := d.dial((n + holders + sleepersPerConnection) / sleepersPerConnection)
		if err != nil {
			return err
		}
		defer end()
		var all []*holder
		err = r.holdNetworks(rows, d, clients, n, &all)
		return errors.Join(err, endAll(r, all))
	})
}

// holdNetworks adds the executions that it starts to all. The first network is not counted: the helper
// starts with it.
func (r *run) holdNetworks(rows rowSet, d *daemon, clients []*skillrun.Client, n int, all *[]*holder) error {
	memory, err := r.hold(d, clients, all, 1, 0)
	if err != nil {
		return err
	}
	began := time.Now()
	networks, err := r.hold(d, clients, all, n-1, 0)
	if err != nil {
		return err
	}
	rows["networks-start"].set(float64(time.Since(began))/1e6, n)
	// KiB for each network. The memory of connections, below, is measured in addition to this.
	each := float64(networks-memory) / 1024 / float64(n-1)
	rows["networks"].set(float64(len(*all)), n)
	rows["network-memory"].set(each, n-1)
	with, err := r.hold(d, clients, all, holders, heldByEach)
	if err != nil {
		return err
	}
	rows["network-connection-memory"].set((float64(with-networks)/1024-each*holders)/(holders*heldByEach), holders*heldByEach)
	return nil
}

// hold starts n executions with so many connections each, and returns the memory of the helper after a
// pause.
func (r *run) hold(d *daemon, clients []*skillrun.Client, all *[]*holder, n, connections int) (int64, error) {
	started := make([]*holder, n)
	err := r.each(n, startWidth, func(_ context.Context, i int) (err error) {
		started[i], err = startHolder(r.ctx, clients[i%len(clients)], connections)
		return err
	})
	for _, h := range started {
		if h != nil {
			*all = append(*all, h)
		}
	}
	if err == nil {
		err = r.pause(r.scale.toIdle)
	}
	if err != nil {
		return 0, err
	}
	helper, err := helperOf(d.pid())
	if err != nil {
		return 0, err
	}
	return residentBytes(helper)
}

// A holder is an execution that runs holdProgram.
type holder struct {
	cmd    *skillrun.Cmd
	mu     sync.Mutex
	text   []byte
	opened chan struct{} // closed when the program has opened its connections
}

// startHolder returns when the program has opened its connections, or has ended.
func startHolder(ctx context.Context, c *skillrun.Client, connections int) (*holder, error) {
	h := &holder{cmd: c.Script(networkSkill, "scripts/hold.sh", fmt.Sprint(connections)), opened: make(chan struct{})}
	h.cmd.Limits.WallTime = requestPatience
	h.cmd.Stdout = h
	if err := h.cmd.Start(ctx); err != nil {
		return nil, err
	}
	// Room for one: the goroutine must end also if the program has opened its connections.
	ended := make(chan error, 1)
	go func() { ended <- h.cmd.Wait() }()
	select {
	case <-h.opened:
		return h, nil
	case err := <-ended:
		return nil, fmt.Errorf("an execution with %d connections ended: %w", connections, err)
	}
}

// Write notes that the connections are open.
func (h *holder) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The word may come in two pieces, and must close the channel once.
	had := bytes.Contains(h.text, []byte("open"))
	h.text = append(h.text, b...)
	if !had && bytes.Contains(h.text, []byte("open")) {
		close(h.opened)
	}
	return len(b), nil
}

// endAll cancels executions and waits for their ends.
func endAll(r *run, all []*holder) error {
	return r.each(len(all), startWidth, func(ctx context.Context, i int) error {
		if err := all[i].cmd.Cancel(ctx); err != nil {
			return fault("cancel", err)
		}
		all[i].cmd.Wait() // it says that the execution was cancelled
		return nil
	})
}

// helperOf returns the network helper of a daemon with one tenant.
func helperOf(daemon int) (int, error) {
	parents, err := parentsOf()
	if err != nil {
		return 0, err
	}
	for pid, parent := range parents {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if parent == daemon && err == nil && strings.Contains(string(line), "skillrun-network") {
			return pid, nil
		}
	}
	return 0, errors.New("the daemon has no network helper")
}
