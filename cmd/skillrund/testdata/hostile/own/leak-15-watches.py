import select, struct
EVENTS = 0xfff  # IN_ALL_EVENTS
TREES = ("/usr/bin", "/etc", "/skills", "/workspace", "/dev", "/opt", "/home", "/run")
paths = ["/", "/usr", "/usr/lib", "/usr/share", "/proc", "/proc/self/exe", "/proc/sys", "/proc/self/ns/user", os.path.dirname(os.__file__), ctypes.__file__]
for top in TREES:
    for at, _, names in os.walk(top):
        paths += [at] + [os.path.join(at, name) for name in names[:40]]
paths = [p for p in paths if p not in ("/dev/stdin", "/dev/stdout", "/dev/stderr")]  # pipes that this program writes to
fd, e = call(294, 0o4000)  # inotify_init1(IN_NONBLOCK)
if fd < 0:
    print("FAIL", errno.errorcode[e])
named = {}
for path in paths[:1000]:
    watch, e = call(254, fd, os.fsencode(path), EVENTS)
    if watch >= 0:
        named[watch] = path
print("PASS" if len(named) > 20 else "FAIL few watches could be tried:", len(named))
# The watch must see this program's own file, or the test shows nothing.
open("/workspace/own", "w").close()
own = b"".join(iter(lambda: os.read(fd, 1 << 16) if select.select([fd], [], [], 0)[0] else b"", b""))
print("PASS sees itself" if b"own" in own else "FAIL doesn't see what it does itself")
print("held", flush=True)
sys.stdin.readline()
seen = set()
while select.select([fd], [], [], 0)[0]:
    data = os.read(fd, 1 << 16)
    while data:
        watch, mask, _, length = struct.unpack_from("iIII", data)
        seen.add("%s %s %#x" % (named.get(watch), data[16 : 16 + length].rstrip(b"\0").decode(), mask))
        data = data[16 + length :]
print("FAIL sees what others do:" if seen else "PASS", len(seen), sorted(seen)[:20])
for path in paths:
    try:
        with open(path, "rb") as f:
            f.read(1)
    except OSError:
        pass
