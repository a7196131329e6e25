import resource
held = []
try:
    while len(held) < 100000:
        held.append(os.open("/dev/null", os.O_RDONLY))
    message = "FAIL no limit %d" % len(held)
except OSError as e:
    message = "%s at %d %s" % ("PASS" if e.errno == errno.EMFILE and len(held) <= 256 else "FAIL", len(held), e.strerror)
print(message)
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))
    print("FAIL raised the limit")
except (OSError, ValueError) as e:
    print("PASS", e)
