package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/network"
	"github.com/skillrun/skillrun/sandbox"
)

// openNetworks makes the manager of networks. Nil: the configuration gives no skill a network. A
// tenant's rules only narrow the daemon's, so a reload of tenants never needs a manager later. program is the path of the
// helpers' program.
func (c *config) openNetworks(host *sandbox.Host, program string, log *slog.Logger) (*network.Manager, error) {
	if c.Network.network().None() {
		return nil, nil
	}
	file, err := network.OpenProgram(program)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err) // inspect explains a missing program
	}
	config := network.Config{
		Program: file, Version: buildVersion(),
		Dir: filepath.Join(c.StateDir, "network"), Log: log, Resolvers: c.resolvers(), Own: c.ownAddresses(), Proxy: c.NetworkProxy.proxy(),
		Group: func(tenant string) (network.Group, error) { return host.NewHelperGroup(tenant, network.HelperLimits) },
	}
	c.NetworkLimits.limits().Set(&config)
	m, err := network.NewManager(config)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("network: %w", err)
	}
	return m, nil
}

// networksOf returns a nil interface for a nil manager.
func networksOf(m *network.Manager) executor.Networks {
	if m == nil {
		return nil
	}
	return m
}

// networkID is the first of the users and groups of the network helpers.
func (c *config) networkID() uint32 {
	if c.IDs.Network > 0 {
		return c.IDs.Network
	}
	return c.IDs.First + c.IDs.Count
}

// checkHelper returns an error if the helpers' program is not there, or is of another version than the daemon.
func checkHelper(ctx context.Context, program string) error {
	if _, err := os.Stat(program); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", program, err)
	}
	if got, want := strings.TrimSpace(string(out)), network.Program+" "+buildVersion(); got != want {
		return fmt.Errorf("%s is %q, want %q; install both from the same release", program, got, want)
	}
	return nil
}
