// Package netdev makes the network interface of a sandbox.
//
// The interface is a TUN device, eth0, in the sandbox's network namespace. What a program
// sends there arrives, packet by packet, at the file that Make returns, and the carrier of
// the network writes the answers to the same file. So no bridge, no firewall rule and no
// forwarding of the machine takes part.
//
// A TUN device belongs to the network namespace in which /dev/net/tun was opened
// (drivers/net/tun.c). So one of the daemon's threads enters the namespace, which needs no
// help from a process in the sandbox, and the interface is the same whichever way the sandbox
// was made. Programs can't change it: that needs CAP_NET_ADMIN, and they see no /dev/net/tun.
package netdev
