package skillrun

import pb "github.com/skillrun/skillrun/proto/skillrun/v1"

// A Network has rules for the network of a program. They can only narrow the rules that the daemon
// grants; docs/network.md describes the rules.
type Network struct {
	// Allow has rules such as "example.com:443". Empty: everything that the daemon's rules allow.
	Allow []string
	// Deny has rules for connections to refuse. A deny rule wins over every allow rule.
	Deny []string
	// Learn allows every public address instead, and the outcome has the rules that would have
	// sufficed: see Execution.Learned. It needs the role admin and goes without Allow.
	Learn bool
}

// NoNetwork is for Cmd.Network: the program runs without a network, also if its skill asks for one.
func NoNetwork() *Network { return &Network{Allow: []string{"none"}} }

// Denied waits for the end and returns the first 100 refusals of the program's network, in order. The outcome's
// evidence counts all. After an Attach with After, earlier refusals are missing.
func (e *Execution) Denied() []*pb.NetworkDenial {
	<-e.done
	return e.denied
}

// Connections waits for the end and returns the program's connections: the first 100 that ended. The
// outcome's usage has the sums of all.
func (e *Execution) Connections() []*pb.NetworkConnection {
	return e.Outcome().GetUsage().GetNetwork().GetConnections()
}

// Learned waits for the end and returns the rules that would have sufficed for a program with
// Network.Learn, and nil for other programs.
func (e *Execution) Learned() *pb.LearnedRules { return e.Outcome().GetLearnedRules() }

func (n *Network) message() *pb.NetworkRules {
	if n == nil {
		return nil
	}
	return &pb.NetworkRules{Allow: n.Allow, Deny: n.Deny, Learn: n.Learn}
}
