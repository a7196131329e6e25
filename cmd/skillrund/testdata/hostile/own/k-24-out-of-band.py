for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    for what, send in {
        "send": lambda: a.send(b"x", socket.MSG_OOB),
        "send with high bits": lambda: a.send(b"x", socket.MSG_OOB | socket.MSG_DONTWAIT),
        "sendmsg": lambda: a.sendmsg([b"x"], [], socket.MSG_OOB),
    }.items():
        fails(what, send)
    a.send(b"in band")
    print("PASS" if b.recv(100) == b"in band" else "FAIL", "in band")
# sendto of 64 bits, of which the kernel reads 32 as flags
a, b = socket.socketpair()
refused("flags beyond an int", 44, a.fileno(), b"x", 1, 1 << 32 | 1, 0, 0)
