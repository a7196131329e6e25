package network

import (
	"fmt"
	"os"

	"github.com/skillrun/skillrun/internal/network/dial"
)

// reserves is the number of reserves of local ports. Each tenant has one; with more tenants than reserves, some tenants
// share a reserve.
const reserves = 16

// leastPorts is the smallest range of local ports that portsOf divides. Reserves of a smaller range would have fewer
// than 32 ports, too few to be of use.
const leastPorts = 1024

// portsOf divides the machine's range of local ports: half of it is common to all helpers, and the other half is
// divided into reserves. The range of most machines, 32768 to 60999, gives 14,116 common ports and 882 in each reserve.
func portsOf(machine dial.PortRange, reserve int) dial.Ports {
	all := int(machine.Last) - int(machine.First) + 1
	if all < leastPorts {
		return dial.Ports{}
	}
	// The rest of the division goes to the common ports.
	each := all / 2 / reserves
	first := int(machine.First) + all - each*reserves
	mine := first + reserve*each
	return dial.Ports{
		Common:  dial.PortRange{First: machine.First, Last: uint16(first - 1)},
		Reserve: dial.PortRange{First: uint16(mine), Last: uint16(mine + each - 1)},
	}
}

// localPorts reads the range of local ports, ip(7).
func localPorts() (p dial.PortRange, err error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(text), &p.First, &p.Last)
	}
	if err != nil {
		return dial.PortRange{}, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// takeReserve returns the reserve that the fewest tenants have. The caller holds mu.
func (m *Manager) takeReserve() int {
	least := 0
	for i, n := range m.reserved {
		if n < m.reserved[least] {
			least = i
		}
	}
	m.reserved[least]++
	return least
}
