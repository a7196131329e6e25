"""Runs pip inside a build's sandbox.

The sandbox has no network. What pip asks of its index comes here, to a server on
the sandbox's own loopback, and goes as a line of JSON to standard output; the
daemon answers on standard input. Nothing here is trusted by the daemon.
"""
import http.server
import json
import os
import queue
import struct
import subprocess
import sys
import threading

FRAME = struct.Struct(">IcI")
PENDING = 64  # frames of one answer that wait for pip
TARGET = "/workspace/env"

# pip itself unpacks wheels. Install code, also of a package that a wheel names by a URL,
# would run as another program, and none starts.
GUARD = """
import runpy, sys
def guard(event, args):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"):
        raise PermissionError("install code may not run: environments.sdists is off")
sys.addaudithook(guard)
sys.path[:] = [p for p in sys.path if p]
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
lock = threading.Lock()
answers = {}
last = 0


def ask(path):
    """Sends a request and returns the queue of its frames."""
    global last
    with lock:
        last += 1
        ident = last
        frames = answers[ident] = queue.Queue(PENDING)
    report(id=ident, path=path)
    return ident, frames


def report(**line):
    """Sends a line to the daemon."""
    with lock:
        stdout.write(json.dumps(line).encode() + b"\n")
        stdout.flush()


def read():
    """Hands the frames of standard input to those who wait."""
    while True:
        head = stdin.read(FRAME.size)
        if len(head) < FRAME.size:
            os._exit(70)
        ident, kind, length = FRAME.unpack(head)
        data = stdin.read(length)
        frames = answers.get(ident)
        if frames is not None:
            frames.put((kind, data))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        ident, frames = ask(self.path)
        try:
            self.answer(frames)
        finally:
            # The daemon ends the download. Frames that it has already sent are read and dropped.
            if not getattr(frames, "ended", False):
                report(drop=ident)
            threading.Thread(target=drop, args=(ident, frames), daemon=True).start()

    def answer(self, frames):
        kind, data = frames.get()
        head = json.loads(data)
        self.send_response(head["status"])
        self.send_header("Content-Type", head["type"])
        if head["length"] >= 0:
            self.send_header("Content-Length", str(head["length"]))
        self.end_headers()
        while True:
            kind, data = frames.get()
            if kind == b"e":
                frames.ended = True
                return
            self.wfile.write(data)

    def log_message(self, *args):
        pass


def drop(ident, frames):
    while not getattr(frames, "ended", False):
        kind, _ = frames.get()
        frames.ended = kind == b"e"
    answers.pop(ident, None)


def main():
    index, wheels, sources = json.loads(sys.argv[1])
    run = [sys.executable, "-c", GUARD] if not sources else [sys.executable, "-m", "pip"]
    args = ["install", "--user", "--break-system-packages", "--ignore-installed", "--no-compile", "--no-cache-dir",
            "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-warn-script-location",
            "--no-color", "--retries", "0", "--timeout", "600", "--root-user-action", "ignore",
            "-r", "/opt/build/requirements.txt"]
    if not sources:
        args += ["--only-binary", ":all:"]
    if wheels:
        args += ["--find-links", "/opt/wheels"]
    if index:
        threading.Thread(target=read, daemon=True).start()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        args += ["--index-url", "http://127.0.0.1:%d/simple/" % server.server_address[1]]
    else:
        args += ["--no-index"]
    os.makedirs("/workspace/tmp", exist_ok=True)
    os.makedirs(TARGET, exist_ok=True)
    env = dict(os.environ, PYTHONUSERBASE=TARGET, PYTHONPATH="/opt/pip", TMPDIR="/workspace/tmp", PIP_CONFIG_FILE="/dev/null")
    done = subprocess.run(run + args, env=env, stdin=subprocess.DEVNULL, stdout=2, stderr=2)
    return 0 if done.returncode == 0 else 1


# At once: threads still wait for what no longer comes.
os._exit(main())
