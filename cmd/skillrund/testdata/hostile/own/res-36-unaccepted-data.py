import signal
kept, held, data = [], 0, bytes(1 << 18)
print("INFO begins", flush=True)
while held < 512 << 20:
    server = socket.create_server(("127.0.0.1", 0), backlog=4096)
    kept.append(server)
    for _ in range(100):
        client = socket.create_connection(server.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # which is charged
        client.setblocking(False)
        try:
            while True:
                held += client.send(data)
        except BlockingIOError:
            client.close()
signal.alarm(2)
signal.pause()
