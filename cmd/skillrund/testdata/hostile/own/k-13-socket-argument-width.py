highs = (1 << 32, 0xffffffff << 32, 1 << 63, 0x7fffffff << 32)
for name, family in (("NETLINK", 16), ("PACKET", 17), ("ALG", 38), ("VSOCK", 40), ("KEY", 15), ("XDP", 44), ("TIPC", 30), ("RDS", 21), ("BLUETOOTH", 31)):
    for kind in (1, 2, 3, 5):
        for high in (0,) + highs:
            result, e = call(41, high | family, kind, 0)
            if result != -1 or e not in (errno.EPERM, errno.ENOSYS):
                print("FAIL", name, kind, hex(high), result, errno.errorcode.get(e, e))
        result, e = call(53, family, kind, 0, ctypes.create_string_buffer(8))
        if result != -1:
            print("FAIL socketpair", name, kind)
    print("PASS", name)
# Of a type the kernel uses the lowest four bits and two flags, and ignores the upper half.
for flags in (0, 0o4000, 0o2000000, 0o2004000):
    for high in (0,) + highs:
        for what, kind, protocol in (("RAW", 3, 0), ("RAW ICMP", 3, 1), ("ping", 2, 1), ("ping6", 2, 58), ("MPTCP", 1, 262), ("SCTP", 1, 132), ("SMC", 1, 256),
                                     ("UDPLITE", 2, 136), ("DCCP", 6, 33), ("L2TP", 2, 115)):
            for family in (2, 10):
                result, e = call(41, family | high, kind | flags | high, protocol | high)
                if result != -1 or e not in (errno.EPERM, errno.ENOSYS):
                    print("FAIL", what, family, hex(high), result, errno.errorcode.get(e, e))
print("PASS types and protocols")
for what, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("FIDEDUPERANGE", 0xC0189436), ("FS_IOC_SETFLAGS", 0x40086602), ("SIOCSIFADDR", 0x8916),
                      ("SIOCETHTOOL", 0x8946), ("FITRIM", 0xC0185879), ("FIFREEZE", 0xC0045877), ("TUNSETIFF", 0x400454CA), ("NS_GET_PARENT", 0xB702)):
    for high in (0,) + highs:
        refused("ioctl %s %#x" % (what, high), 16, 1, request | high, 0)
for what, level, option in (("TCP_ULP", 6, 31), ("TCP_REPAIR", 6, 19), ("TCP_AO_ADD_KEY", 6, 38), ("SOL_ALG", 279, 1), ("SOL_NETLINK", 270, 1), ("SOL_TLS", 282, 1),
                            ("SOL_PACKET", 263, 5), ("SOL_XDP", 283, 1)):
    for high in (0,) + highs:
        refused("setsockopt %s %#x" % (what, high), 54, 0, level | high, option | high, b"tls\0", 4)
