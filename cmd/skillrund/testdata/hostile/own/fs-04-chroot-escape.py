refused("chroot", 161, b"/tmp")
refused("chroot to a descriptor's directory", 161, b"/proc/self/fd/0")
refused("pivot_root", 155, b"/tmp", b"/tmp")
root = os.stat("/")
# The classic attack: keep a directory outside of a new root open, then walk up from it.
held = os.open("/usr", os.O_RDONLY)
os.makedirs("/tmp/jail", exist_ok=True)
refused("chroot beneath a held directory", 161, b"/tmp/jail")
os.fchdir(held)
for _ in range(64):
    os.chdir("..")
here = os.stat(".")
same = (here.st_dev, here.st_ino) == (root.st_dev, root.st_ino)
print("PASS .. ends at the root" if same else "FAIL .. leads to %r" % os.listdir("."))
fd = os.open("/workspace", os.O_RDONLY)
up = os.stat("/".join([".."] * 64), dir_fd=fd)
print("PASS .. of a descriptor" if (up.st_dev, up.st_ino) == (root.st_dev, root.st_ino) else "FAIL .. of a descriptor leaves the root")
for path in ("/root", "/boot", "/lost+found", "/etc/shadow", "/var/lib", "/var/run"):
    print("FAIL host path" if os.path.exists("/usr" + "/.." * 64 + path) else "PASS absent", path)
