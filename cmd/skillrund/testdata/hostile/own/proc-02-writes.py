import glob
paths = ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
         "/proc/sys/kernel/panic", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname",
         "/proc/sys/kernel/randomize_va_space", "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/ns_last_pid",
         "/proc/sys/kernel/shmmax", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory",
         "/proc/sys/vm/panic_on_oom", "/proc/sys/vm/mmap_min_addr", "/proc/sys/vm/memfd_noexec", "/proc/sys/fs/binfmt_misc/register",
         "/proc/sys/fs/file-max", "/proc/sys/fs/suid_dumpable", "/proc/sys/fs/protected_symlinks", "/proc/sys/net/ipv4/ip_forward",
         "/proc/sys/net/ipv4/ping_group_range", "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/net/core/somaxconn",
         "/proc/sys/user/max_user_namespaces", "/proc/sys/user/max_inotify_watches", "/proc/irq/default_smp_affinity", "/proc/bus/pci/00/00.0",
         "/proc/mtrr", "/proc/acpi/wakeup", "/proc/scsi/scsi", "/proc/kcore", "/proc/kmsg", "/proc/timer_list", "/proc/sys/kernel/keys/maxkeys",
         "/proc/1/oom_score_adj", "/proc/1/uid_map", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/self/projid_map",
         "/proc/1/mem", "/proc/1/attr/current", "/proc/1/clear_refs", "/proc/1/timens_offsets", "/proc/timens_offsets"]
for path in paths + glob.glob("/proc/irq/*/smp_affinity")[:8]:
    if path.startswith(("/proc/self/", "/proc/1/")) and path.endswith(("_map", "setgroups")):
        # Every process can open these for itself, but must not be able to write to them.
        fails("write " + path, lambda: open(path, "wb", buffering=0).write(b"0 0 1"))
    else:
        fails(path, lambda: os.open(path, os.O_WRONLY))
# All other settings: no file beneath /proc/sys may be opened for writing.
n = bad = 0
for top, _, files in os.walk("/proc/sys"):
    for name in files:
        n += 1
        try:
            os.open(os.path.join(top, name), os.O_WRONLY)
        except OSError:
            continue
        bad += 1
        print("FAIL writable", os.path.join(top, name))
print("PASS" if n > 100 and not bad else "FAIL", n, "tunables tried")
