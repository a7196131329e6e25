// Package gateway carries the packets of one sandbox by a TCP/IP stack in user space (gVisor's
// netstack). No other sandbox shares the stack, so a packet needs no identity: its stack has one.
//
// Theory of operation. The sandbox has one interface, a TUN device, and a Gateway has the other end
// of it. link.go reads its packets and passes on TCP and UDP from the sandbox's own addresses,
// nothing else. The stack accepts packets for every destination. It calls the Gateway for each new
// TCP connection (tcp.go) and each new UDP session (udp.go). The Gateway asks the rules (judge.go),
// makes a socket of its own to the destination and copies bytes between the two. A refused
// connection gets a reset at once, a refused UDP packet an ICMP error: both are ECONNREFUSED in the
// sandbox.
//
// The two name server addresses of the sandbox are the Gateway's own (dns.go). It resolves names
// that the rules allow at the machine's resolvers, and remembers which address belongs to which
// name (pins.go). A rule with a domain name allows an address only through this memory. As one
// address often serves many names, the Gateway also reads the name that the client sends over such a
// connection: the server name of TLS (tls.go), or the Host of each HTTP request on port 80
// (http.go).
//
// Everything that a sandbox can make grow has a bound (limits.go). Refusals and ended connections
// are events for a policy.Sink (report.go), and they have a bound, too.
package gateway
