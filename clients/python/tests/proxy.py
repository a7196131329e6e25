"""A proxy to the daemon whose connections a test can cut."""

import os
import socket
import tempfile
import threading


class Proxy:
    """Forwards bytes between a client and the daemon's Unix socket."""

    def __init__(self, target):
        self._target = target[len("unix://") :]
        self._folder = tempfile.TemporaryDirectory()
        path = os.path.join(self._folder.name, "p")
        self.address = "unix://" + path
        self.cuts = 0
        self._mark = None
        self.sent = 0  # bytes to the daemon
        self._most = None
        self._open = set()
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Cuts every open connection."""
        with self._lock:
            ends, self._open = self._open, set()
            self.cuts += 1
        for end in ends:
            self._shut(end)

    def cut_before(self, mark):
        """Cuts once, before data of the daemon that contains mark is forwarded."""
        with self._lock:
            self._mark = mark

    def cut_after(self, sent):
        """Cuts once, when so many bytes were forwarded to the daemon."""
        with self._lock:
            self._most = sent

    def close(self):
        self._listener.close()
        self.cut()
        self._folder.cleanup()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            daemon = socket.socket(socket.AF_UNIX)
            try:
                daemon.connect(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, daemon}
            for source, to, marked in ((client, daemon, False), (daemon, client, True)):
                threading.Thread(target=self._pass, args=(source, to, marked), daemon=True).start()

    def _pass(self, source, to, marked):
        try:
            while True:
                data = source.recv(64 << 10)
                if not data:
                    break
                with self._lock:
                    hit = marked and self._mark is not None and self._mark in data
                    if hit:
                        self._mark = None
                    if not marked:
                        self.sent += len(data)
                        hit = self._most is not None and self.sent >= self._most
                        self._most = None if hit else self._most
                if hit:
                    self.cut()
                    break
                to.sendall(data)
        except OSError:
            pass
        self._shut(source)
        self._shut(to)

    def _shut(self, end):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()
