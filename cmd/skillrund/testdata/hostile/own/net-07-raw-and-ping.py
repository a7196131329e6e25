for family in (2, 10):
    for protocol in (0, 1, 2, 6, 17, 41, 47, 50, 58, 89, 115, 132, 255):
        fails("raw %d/%d" % (family, protocol), lambda: socket.socket(family, socket.SOCK_RAW, protocol))
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM, 10):
    fails("packet %d" % kind, lambda: socket.socket(17, kind, 0x300))
fails("ping", lambda: socket.socket(2, socket.SOCK_DGRAM, 1))
fails("ping6", lambda: socket.socket(10, socket.SOCK_DGRAM, 58))
s = socket.socket()
for what, level, option, value in (("SO_MARK", 1, 36, b"\1\0\0\0"), ("SO_PRIORITY 7", 1, 12, b"\7\0\0\0"), ("IP_TRANSPARENT", 0, 19, b"\1\0\0\0"),
                                   ("SO_RCVBUFFORCE", 1, 33, b"\0\0\0\1"), ("SO_BINDTODEVICE", 1, 25, b"eth0\0"), ("IP_HDRINCL", 0, 3, b"\1\0\0\0")):
    fails("setsockopt " + what, lambda: s.setsockopt(level, option, value))
