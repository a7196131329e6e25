found = n = 0


def walk(path):
    global found, n
    try:
        entries = list(os.scandir(path))
    except OSError:
        return
    for e in entries:
        n += 1
        if e.is_symlink() or e.path == "/proc":
            continue
        if e.is_dir(follow_symlinks=False):
            walk(e.path)
        elif not e.is_file(follow_symlinks=False) and stat.S_ISSOCK(e.stat(follow_symlinks=False).st_mode):
            found += 1
            print("FAIL socket", e.path)


walk("/")
print("PASS no socket" if n > 500 and not found else "FAIL", n, "files")
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/skillrun/skillrun.sock", "/run/systemd/private", "/run/systemd/notify",
             "/run/systemd/journal/socket", "/run/dbus/system_bus_socket", "/run/udev/control", "/run/crio/crio.sock", "/var/lib/mysql/mysql.sock",
             "/tmp/.s.PGSQL.5432", "/run/postgresql/.s.PGSQL.5432", "/tmp/ssh-agent.sock", "/dev/log"):
    s = socket.socket(socket.AF_UNIX)
    fails(path, lambda: s.connect(path))
