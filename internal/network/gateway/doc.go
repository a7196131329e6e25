// Package gateway carries the packets of one sandbox by a TCP/IP stack in user space (gVisor's
// netstack). Each sandbox has a separate stack, so the stack tells which sandbox sent a packet.
//
// Theory of operation. The sandbox has one interface, a TUN device, and a Gateway has the other end
// of it. link.go reads the packets, and passes on only TCP and UDP from the sandbox's addresses. The
// stack accepts packets for every destination. It calls the Gateway for each new TCP connection
// (tcp.go) and each new UDP session (udp.go). The Gateway asks the rules (judge.go), opens a socket
// of the machine to the destination and copies bytes between the two. It answers a refused connection
// with a reset at once, and a refused UDP packet with an ICMP error. The program sees ECONNREFUSED in
// both cases.
//
// The Gateway answers at the sandbox's two name server addresses (dns.go). It asks the machine's
// resolvers for names that the rules allow, and remembers which address belongs to which name
// (pins.go). A rule with a domain name allows an address only through this memory. As one address
// often serves many names, the Gateway also reads the name that the client sends over such a
// connection: the server name of TLS (tls.go), or the Host of each HTTP request on port 80 (http.go).
//
// If the configuration has an HTTP proxy, the Gateway asks the proxy for each TCP connection that the rules
// allow (package dial). The proxy gets the address that was judged. A proxy that looks names up gets the name, and
// the sandbox gets an address that stands for it.
//
// Everything that a sandbox can make grow has a bound (limits.go, policy.Limits). Refusals and ended connections
// are events for a policy.Sink (report.go), and they have a bound, too.
package gateway
