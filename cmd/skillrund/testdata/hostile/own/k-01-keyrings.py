for ring in (-1, -2, -3, -4, -5, -8):
    refused("keyctl get_keyring_id %d" % ring, 250, 0, ring, 1)
refused("keyctl join_session", 250, 1, 0)
refused("keyctl read", 250, 11, 1, 0, 0)
refused("keyctl watch", 250, 32, -3, -1, 0)
refused("keyctl setperm", 250, 5, -3, 0x3f3f3f3f)
for kind in (b"user", b"logon", b"keyring", b"big_key", b"asymmetric"):
    refused("add_key " + kind.decode(), 248, kind, b"hostile", b"x", 1, -3)
refused("request_key", 249, b"user", b"hostile", b"x", -3)
for path in ("/proc/keys", "/proc/key-users"):
    try:
        text = open(path).read()
        print("FAIL shown" if text else "PASS empty", path)
    except OSError as e:
        print("PASS", path, e.strerror)
