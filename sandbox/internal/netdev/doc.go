// Package netdev makes the network interface of a sandbox.
//
// The interface is a TUN device, eth0, in the sandbox's network namespace. Make returns a file. The
// carrier of the network reads the program's packets from this file, one at a time, and writes the
// answers to it. So no bridge, no firewall rule and no forwarding of the machine takes part.
//
// A TUN device belongs to the network namespace in which /dev/net/tun was opened
// (drivers/net/tun.c). So one of the daemon's threads enters the namespace. This needs no process in
// the sandbox, and works in the same way for cloned, forked and executed programs. Programs can't
// change the interface: that requires CAP_NET_ADMIN, and they see no /dev/net/tun.
package netdev
