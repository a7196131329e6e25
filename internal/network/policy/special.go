package policy

import (
	"encoding/binary"
	"net/netip"
)

// A block is a range of addresses that are not public. The zero block stands for the public addresses.
type block struct {
	prefix netip.Prefix
	name   string // as a Verdict's Rule says it
	detail string // more than name says, or empty
	exact  bool   // only a rule with exactly the address opens it
	never  bool   // no rule opens it
	closed bool   // a rule opens it, but no refusal suggests that rule
}

func (b block) isPublic() bool { return b.name == "" }

// blocks are the ranges of the special-purpose registries of IANA for IPv4 and IPv6, and all of IPv6
// that IANA has not assigned. Of the ranges around an address the longest counts.
var blocks = []block{
	{prefix: cidr("0.0.0.0/8"), name: "unspecified", never: true},
	{prefix: cidr("10.0.0.0/8"), name: "private"},
	{prefix: cidr("100.64.0.0/10"), name: "shared", detail: "RFC 6598"},
	{prefix: cidr("127.0.0.0/8"), name: "loopback"},
	{prefix: cidr("169.254.0.0/16"), name: "link-local"},
	{prefix: cidr("172.16.0.0/12"), name: "private"},
	{prefix: cidr("192.0.0.0/24"), name: "reserved"},
	{prefix: cidr("192.0.2.0/24"), name: "documentation"},
	{prefix: cidr("192.88.99.0/24"), name: "reserved", detail: "6to4 relay"},
	{prefix: cidr("192.168.0.0/16"), name: "private"},
	{prefix: cidr("198.18.0.0/15"), name: "benchmarking"},
	{prefix: cidr("198.51.100.0/24"), name: "documentation"},
	{prefix: cidr("203.0.113.0/24"), name: "documentation"},
	{prefix: cidr("224.0.0.0/4"), name: "multicast", never: true},
	{prefix: cidr("240.0.0.0/4"), name: "reserved"},
	{prefix: cidr("255.255.255.255/32"), name: "broadcast", never: true},

	// Only 2000::/3 is assigned for global addresses. The exception is the prefix of NAT64, whose
	// addresses are judged by the IPv4 addresses in them.
	{prefix: cidr("::/3"), name: "reserved"},
	{prefix: cidr("4000::/2"), name: "reserved"},
	{prefix: cidr("8000::/1"), name: "reserved"},
	{prefix: nat64},
	{prefix: cidr("::/128"), name: "unspecified", never: true},
	{prefix: cidr("::1/128"), name: "loopback"},
	{prefix: compatible, name: "reserved", detail: "IPv4-compatible"},
	{prefix: localNAT64, name: "reserved", detail: "local NAT64", exact: true},
	{prefix: cidr("100::/64"), name: "reserved", detail: "discard"},
	{prefix: cidr("2001::/23"), name: "reserved"},
	{prefix: teredo, name: "reserved", detail: "Teredo"},
	{prefix: cidr("2001:db8::/32"), name: "documentation"},
	{prefix: sixToFour, name: "reserved", detail: "6to4"},
	{prefix: cidr("3fff::/20"), name: "documentation"},
	{prefix: cidr("fc00::/7"), name: "private", detail: "unique local"},
	{prefix: cidr("fe80::/10"), name: "link-local"},
	{prefix: cidr("fec0::/10"), name: "reserved", detail: "site-local"},
	{prefix: cidr("ff00::/8"), name: "multicast", never: true},

	// Services that give the machine's credentials or its configuration to every program on it.
	metadata("169.254.169.254", "link-local"), // nearly all clouds
	metadata("169.254.170.2", "link-local"),   // AWS ECS
	metadata("169.254.170.23", "link-local"),  // AWS EKS
	metadata("169.254.0.23", "link-local"),    // Tencent
	metadata("fd00:ec2::254", "private"),      // AWS
	metadata("fd00:ec2::23", "private"),       // AWS EKS
	metadata("fd20:ce::254", "private"),       // Google
	metadata("fe80::a9fe:a9fe", "link-local"), // OpenStack
	metadata("100.100.100.200", "shared"),     // Alibaba
	metadata("192.0.0.192", "reserved"),       // Oracle
	metadata("168.63.129.16", "metadata"),     // Azure: otherwise a public address
}

// The ranges of IPv6 whose addresses have an IPv4 address in them.
var (
	compatible = cidr("::/96")
	nat64      = cidr("64:ff9b::/96")
	localNAT64 = cidr("64:ff9b:1::/48")
	teredo     = cidr("2001::/32")
	sixToFour  = cidr("2002::/16")
)

// isatap begins the interface identifiers of ISATAP, after their first byte (RFC 5214, 6.1).
var isatap = [3]byte{0x00, 0x5e, 0xfe}

func cidr(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func metadata(addr, name string) block {
	a := netip.MustParseAddr(addr)
	return block{prefix: netip.PrefixFrom(a, a.BitLen()), name: name, detail: "cloud metadata", exact: true}
}

// plain returns the address without a zone, and as IPv4 if it is a mapped one.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// blockOf returns the smallest block around a plain address. An IPv6 address that contains a special
// IPv4 address is a block with one address, which no wider CIDR opens.
func blockOf(addr netip.Addr) block { return blockWith(addr, embedded(addr)) }

// blockWith is blockOf for an address that contains these IPv4 addresses.
func blockWith(addr netip.Addr, contained []netip.Addr) block {
	around := smallest(netip.PrefixFrom(addr, addr.BitLen()))
	// These are at least as narrow as the block of an embedded address.
	if around.exact || around.never {
		return around
	}
	for _, inner := range contained {
		if b := smallest(netip.PrefixFrom(inner, 32)); !b.isPublic() {
			b.detail = inner.String() + " is in it"
			b.prefix = netip.PrefixFrom(addr, addr.BitLen())
			b.exact = true
			return b
		}
	}
	return around
}

// blockAround returns the smallest block around all addresses of a prefix.
func blockAround(prefix netip.Prefix) block {
	if prefix.IsSingleIP() {
		return blockOf(prefix.Addr())
	}
	return smallest(prefix)
}

// smallest returns the smallest block of the table around a prefix. The table has blocks inside of others, such as
// the broadcast address in 240.0.0.0/4.
func smallest(prefix netip.Prefix) block {
	var found block
	for _, b := range blocks {
		if contains(b.prefix, prefix) && b.prefix.Bits() >= found.prefix.Bits() {
			found = b
		}
	}
	return found
}

// contains reports whether outer has all addresses of inner.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// embedded returns the IPv4 addresses that a plain IPv6 address has in it. Where the format leaves it
// open which bits they are, it returns all possible ones.
func embedded(addr netip.Addr) (inner []netip.Addr) {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr), compatible.Contains(addr) && !addr.IsUnspecified() && !addr.IsLoopback():
		inner = v4(b[12:16])
	case sixToFour.Contains(addr):
		inner = v4(b[2:6])
	case teredo.Contains(addr):
		client := ^binary.BigEndian.Uint32(b[12:16]) // the client's address is inverted
		inner = append(v4(b[4:8]), v4(binary.BigEndian.AppendUint32(nil, client))...)
	case localNAT64.Contains(addr): // the layouts of RFC 6052 for prefixes of 48, 56, 64 and 96 bits
		inner = v4([]byte{b[6], b[7], b[9], b[10]}, []byte{b[7], b[9], b[10], b[11]}, b[9:13], b[12:16])
	}
	if b[8]&^0x02 == 0 && [3]byte(b[9:12]) == isatap { // in any prefix; the bit says whether the IPv4 address is unique
		inner = append(inner, v4(b[12:16])...)
	}
	return inner
}

func v4(each ...[]byte) (addrs []netip.Addr) {
	for _, four := range each {
		addrs = append(addrs, netip.AddrFrom4([4]byte(four)))
	}
	return addrs
}
