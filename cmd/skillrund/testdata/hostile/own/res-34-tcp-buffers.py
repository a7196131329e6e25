kept, held = [], 0
server = socket.create_server(("127.0.0.1", 0), backlog=100)
print("INFO listening")
try:
    while held <= 64 << 20:
        client = socket.create_connection(server.getsockname())
        kept += [client, server.accept()[0]]
        client.setblocking(False)
        try:
            while True:
                held += client.send(bytes(65536))
        except BlockingIOError:
            pass
except OSError as e:
    if e.errno not in (errno.EMFILE, errno.ENOMEM, errno.ENOBUFS):
        raise
print("FAIL" if held > 64 << 20 else "PASS", held >> 20, "MiB are held")
