import struct
IPV6_2292PKTOPTIONS, IPV6_FLOWLABEL_MGR, MCAST_MSFILTER, IPV6_TCLASS = 6, 32, 48, 67
# Control messages that say the same again and again, cmsg(3).
options = struct.pack("=QIIi4x", 20, socket.IPPROTO_IPV6, IPV6_TCLASS, 1) * 2600
kept, end = [], None
while len(kept) * len(options) <= 64 << 20 and not end:
    try:
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        s.setsockopt(socket.IPPROTO_IPV6, IPV6_2292PKTOPTIONS, options)
        kept.append(s)
    except OSError as e:
        end = e
print("FAIL" if kept else "PASS", "options", len(kept) * len(options) >> 20, "MiB", end)
kept.clear()
# struct in6_flowlabel_req: a label of its own for ::1, which nobody else may use (IPV6_FL_A_GET, IPV6_FL_S_EXCL)
request = socket.inet_pton(socket.AF_INET6, "::1") + struct.pack("=IBBHHHI", 0, 0, 1, 1, 10, 0, 0)
fails("label", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, request))


def address(text):
    """A struct sockaddr_storage."""
    return struct.pack("=HHI", socket.AF_INET6, 0, 0) + socket.inet_pton(socket.AF_INET6, text).ljust(120, b"\0")


# struct group_filter: 64 sources of one group on the loopback, MCAST_INCLUDE
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, "ff02::1234") + struct.pack("I", 1))
sources = b"".join(address("2001:db8::%x" % n) for n in range(64))
request = struct.pack("=II", 1, 0) + address("ff02::1234") + struct.pack("=II", 1, 64) + sources
fails("sources", lambda: s.setsockopt(socket.IPPROTO_IPV6, MCAST_MSFILTER, request))
