package cgroup

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // enables device rules
	devices "github.com/opencontainers/cgroups/devices/config"
)

// A Device is a character device of the kernel's memory driver, whose major number is 1
// (mem(4), null(4), random(4)).
type Device struct {
	Name  string // beneath /dev
	Minor int64  // of makedev(3)
}

// Devices are the devices that a sandbox has. Its cgroup refuses all others.
var Devices = []Device{{"null", 3}, {"zero", 5}, {"full", 7}, {"random", 8}, {"urandom", 9}}

// Rule allows reads and writes of the device, but not to make a node for it.
func (d Device) Rule() devices.Rule {
	return devices.Rule{Type: devices.CharDevice, Major: 1, Minor: d.Minor, Permissions: "rw", Allow: true}
}

// DeviceRules refuse every device but Devices.
func DeviceRules() []*devices.Rule {
	rules := []*devices.Rule{{
		Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm", Allow: false,
	}}
	for _, d := range Devices {
		rule := d.Rule()
		rules = append(rules, &rule)
	}
	return rules
}

// LimitDevices allows the processes of the group and of its descendants only a sandbox's
// devices. On v1 it does nothing: there the zygote's sandboxes are in the zygote's cgroup
// of the devices hierarchy, which libcontainer limits.
func (g Group) LimitDevices() error {
	if !g.Unified {
		return nil
	}
	if err := cgroups.DevicesSetV2(g.Dirs[""], &cgroups.Resources{Devices: DeviceRules()}); err != nil {
		return fmt.Errorf("device rules of %s: %w", g.Dirs[""], err)
	}
	return nil
}
