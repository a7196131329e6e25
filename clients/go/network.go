package skillrun

import pb "github.com/skillrun/skillrun/proto/skillrun/v1"

// Network has rules of what a program may reach in the network. They can only take away from what the
// daemon grants; docs/network.md describes the rules.
type Network struct {
	// Allow has rules such as "example.com:443". Empty: all that the daemon's rules allow.
	Allow []string
	// Deny has rules of what to refuse. They win.
	Deny []string
}

// NoNetwork is for Cmd.Network: the program runs without a network, also if its skill asks for one.
func NoNetwork() *Network { return &Network{Allow: []string{"none"}} }

func (n *Network) message() *pb.NetworkRules {
	if n == nil {
		return nil
	}
	return &pb.NetworkRules{Allow: n.Allow, Deny: n.Deny}
}
