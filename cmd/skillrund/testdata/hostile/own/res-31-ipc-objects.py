b = ctypes.create_string_buffer(128)
for what, number, *args in (("shmget", 29, 0, 4096, 0o1600), ("shmget key", 29, 0x5eed, 4096, 0o1600), ("shmat", 30, 0, 0, 0), ("shmctl", 31, 0, 14, b), ("shmdt", 67, 0),
                            ("semget", 64, 0, 250, 0o1600), ("semop", 65, 0, b, 1), ("semctl", 66, 0, 0, 19, b), ("semtimedop", 220, 0, b, 1, 0),
                            ("msgget", 68, 0, 0o1600), ("msgsnd", 69, 0, b, 8, 0o4000), ("msgrcv", 70, 0, b, 8, 0, 0o4000), ("msgctl", 71, 0, 12, b),
                            ("mq_open", 240, b"hostile", 0o102, 0o600, 0), ("mq_unlink", 241, b"hostile"), ("mq_getsetattr", 245, -1, 0, b), ("mq_notify", 244, -1, b)):
    refused(what, number, *args)
fails("/dev/mqueue", lambda: os.listdir("/dev/mqueue"))
# POSIX shared memory is a file of a tmpfs that ends with the sandbox.
open("/dev/shm/hostile", "w").write("x")
print("PASS /dev/shm", os.statvfs("/dev/shm").f_files, "files at most")
