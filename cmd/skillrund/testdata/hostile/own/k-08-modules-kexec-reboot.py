b = ctypes.create_string_buffer(64)
for what, number, *args in (
        ("init_module", 175, b, 0, b""), ("finit_module", 313, -1, b"", 0), ("delete_module", 176, b"none", 0o4000), ("kexec_load", 246, 0, 0, 0, -1),
        ("kexec_file_load", 320, -1, -1, 0, 0, -1), ("reboot", 169, 0, 0, 0, 0), ("reboot, magic", 169, 0xfee1dead, 672274793, 0x12345, 0),
        ("swapon", 167, b"/none", 0), ("swapoff", 168, b"/none"), ("acct", 163, b"/none"), ("settimeofday", 164, 0, 1), ("clock_settime", 227, 0, 0),
        ("clock_adjtime", 305, 0, 0), ("adjtimex", 159, 0), ("sethostname", 170, b"", -1), ("setdomainname", 171, b"", -1), ("iopl", 172, 3), ("ioperm", 173, 0x80, 1, 1),
        ("quotactl", 179, -1, 0, 0, 0), ("quotactl_fd", 443, -1, -1, 0, 0), ("syslog", 103, 3, b, 64), ("vhangup", 153), ("lookup_dcookie", 212, 0, b, 64),
        ("nfsservctl", 180, 0, 0, 0), ("uselib", 134, b"/none"), ("sysfs", 139, 3), ("_sysctl", 156, 0), ("fanotify_init", 300, 0, 0), ("pidfd_open", 434, 1, 0)):
    refused(what, number, *args)
