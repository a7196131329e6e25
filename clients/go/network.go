package skillrun

import pb "github.com/skillrun/skillrun/proto/skillrun/v1"

// A Network has rules for the network of a program. They can only narrow the rules that the daemon
// grants; docs/network.md describes the rules.
type Network struct {
	// Allow has rules such as "example.com:443". Empty: everything that the daemon's rules allow.
	Allow []string
	// Deny has rules for connections to refuse. A deny rule wins over every allow rule.
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
