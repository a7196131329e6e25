package sandbox

// A check is one boundary that the probe tries from inside a sandbox. init_probe.c
// reports it by the same name. The name never changes, because configurations use it.
type check struct{ name, group, why, how string }

// Remedies that several checks share.
const (
	howFilter = "a kernel with CONFIG_SECCOMP_FILTER, and a libseccomp of 2.5 or later that knows the call; else it is a defect of skillrun, please report it"
	howKernel = "a kernel that skillrun is tried on (6.1 or later), not patched or configured to go without it; else it is a defect of skillrun, please report it"
	howMounts = "a kernel and a container runtime that leave skillrun's own mounts alone; else it is a defect of skillrun, please report it"
	howLimits = "cgroups of its own that nobody else writes to (under systemd Delegate=yes), with memory and pids"
)

// checks are the checks that the probe's program makes, in the order of the report. The
// program makes the last one last.
var checks = []check{
	{"nothing inherited", "identity", "no open file or socket of the daemon is in a script's hands", howKernel},
	{"environment", "identity", "no variable of the daemon is seen by a script", howKernel},
	{"no capabilities", "identity", "root's powers are no script's", howKernel},
	{"no new privileges", "identity", "no program that is started gains any", howKernel},
	{"system call filter", "kernel", "a script reaches only the part of the kernel that it needs", howFilter},
	{"unprivileged ids", "identity", "a script is neither root nor in any group, also inside its sandbox", howKernel},
	{"ids of its own", "identity", "what leaves the sandbox belongs to nobody on the machine", "ids.first and ids.count with a range that no account uses, mapped where skillrund runs"},
	{"resource limits", "limits", "bounds per process: open files, core dumps, locked memory, queues", howKernel},
	{"no core dumps", "limits", "what crashes in a sandbox starts no program of the machine, and a script can't change that", "a kernel.core_pattern that is no socket (sysctl kernel.core_pattern=core), and " + howFilter},
	{"first to go when memory is short", "limits", "the kernel ends a script before a service, and the script can't change that", howMounts},

	{"user namespace of its own", "namespaces", "root of a sandbox is nobody outside", howKernel},
	{"mnt namespace of its own", "namespaces", "a file tree of its own", howKernel},
	{"pid namespace of its own", "namespaces", "processes outside have no number inside", howKernel},
	{"net namespace of its own", "namespaces", "no network but a loopback of its own", howKernel},
	{"ipc namespace of its own", "namespaces", "no shared memory or queue with others", howKernel},
	{"uts namespace of its own", "namespaces", "the host's name stays unknown", howKernel},
	{"cgroup namespace of its own", "namespaces", "the cgroups of the machine stay invisible", howKernel},
	{"time namespace of its own", "namespaces", "how long the machine is up stays unknown", howKernel},

	{"other processes are hidden", "processes", "a script sees no process but its own", "a kernel whose proc knows hidepid; /proc with nothing mounted over its parts"},
	{"init hides its files", "processes", "the memory and the files of the sandbox's init stay its own", howKernel},
	{"init takes no signals", "processes", "a script can't end the one who reports its end", howKernel},

	{"loopback of the host", "network", "services of the machine on 127.0.0.1 can't be called", "a network namespace of its own for each sandbox; for the trial an interface lo that is up where skillrund runs"},
	{"abstract sockets of the host", "network", "services of the machine on abstract addresses can't be called", "a network namespace of its own for each sandbox"},
	{"sockets of the host", "network", "neither the daemon nor another service can be called by its socket", howMounts},
	{"no way out", "network", "no interface and no route leave the sandbox", "a kernel that makes only lo in a new network namespace (net.core.fb_tunnels_only_for_init_net=2)"},
	{"socket families", "network", "only local, TCP and UDP sockets: the others have brought many holes", howFilter},

	{"read-only root", "files", "what all sandboxes share can't be changed", howMounts},
	{"mounts", "files", "every mount is without setuid and devices, and read-only but for the script's own", howMounts},
	{"files of the host are hidden", "files", "secrets, sockets and state of the machine are not there", howMounts},
	{"nothing else of the host", "files", "of the machine's directories only /usr and a short table are there", howMounts},
	{"devices", "files", "/dev has only null, zero, full, random and urandom", howMounts},
	{"inodes of its own", "files", "no lock and no watch shows what other sandboxes and the machine do with the same files", "a kernel of 5.19 or later with CONFIG_OVERLAY_FS (modprobe overlay), and a /usr on which overlays can be laid: not itself two overlays deep"},
	{"new devices", "files", "a script can't make a node of a disk or of memory", howFilter},
	{"masked files of the kernel", "files", "addresses, logs and hardware of the machine stay unknown", "a /proc with nothing mounted over its parts, and a kernel on which files can be mounted over others"},
	{"settings of the kernel", "files", "sysctl, core_pattern and sysrq can't be changed", "a /proc/sys that can be mounted read-only"},
	{"writable workspace", "files", "a script can keep what it makes", "a kernel of 5.19 or later with CONFIG_OVERLAY_FS (modprobe overlay)"},
	{"disk limit", "limits", "a script can't fill the machine's memory with files", "a kernel with CONFIG_TMPFS and its size option"},
	{"file limit", "limits", "a script can't fill it with empty ones either", "a kernel with CONFIG_TMPFS and its nr_inodes option"},

	{"processes in new namespaces", "kernel", "nearly every local root exploit of these years needed a new namespace", howFilter},
	{"terminals", "kernel", "nothing is typed into a terminal of the machine", howFilter},
	{"other architectures", "kernel", "calls by other numbers don't pass the filter", howFilter},
	{"priority inheritance", "kernel", "the futex operations that were exploited are not reached", howFilter},
	{"mounting", "kernel", "masks and read-only mounts can't be taken away", howFilter},
	{"new namespaces", "kernel", "no capability is gained in a namespace of a script's own, and none is joined", howFilter},
	{"tracing", "kernel", "no process is read, steered or made to fake its end", howFilter},
	{"keyrings", "kernel", "keys are known by number and outlive a process", howFilter},
	{"bpf", "kernel", "no program is loaded into the kernel", howFilter},
	{"performance counters", "kernel", "what others do can't be measured", howFilter},
	{"io_uring", "kernel", "no file or socket is opened past the filter", howFilter},
	{"userfaultfd", "kernel", "the kernel can't be held up in the middle of a copy", howFilter},
	{"other kernels and modules", "kernel", "no code is loaded into the kernel", howFilter},
	{"administration", "kernel", "no reboot, swap, accounting or quota", howFilter},
	{"clocks", "kernel", "the machine's time can't be set", howFilter},
	{"host name", "kernel", "names can't be set", howFilter},
	{"file handles", "kernel", "no file is opened past its directories", howFilter},
	{"changing ids", "kernel", "a script stays who it is", howFilter},
	{"changing capabilities", "kernel", "a script stays without them", howFilter},
	{"queues and shared memory", "kernel", "what is known by number and outlives a process is not there", howFilter},
	{"kernel log", "kernel", "what the kernel says of the machine stays unknown", howFilter},
	{"watching file systems", "kernel", "what others open can't be seen", howFilter},
	{"page cache", "kernel", "pages of shared files are not written to (Dirty Pipe)", howFilter},
	{"hidden memory", "kernel", "no memory that nobody can account or look into", howFilter},
	{"priorities", "kernel", "no time is taken away from neighbours", howFilter},
	{"ports and segments", "kernel", "no hardware is reached, and old modes of the processor are not", howFilter},
	{"socket buffers", "limits", "a script can't fill the machine's memory with what nobody reads", howLimits + "; not cgroup.memory=nosocket on the kernel's command line"},
	{"process limit", "limits", "a fork bomb stays in its sandbox", howLimits},
}

// Checks that the daemon makes from outside, after the program's end.
var (
	checkMemory = check{"memory limit", "limits", "a script that uses too much memory ends, and nobody else", howLimits + "; on cgroup v1 swap that counts (swapaccount=1)"}
	checkEnd    = check{"everything ends", "limits", "no process outlives its execution, whatever it does", howLimits}
	checkCPU    = check{"CPU accounting", "limits", "a limit of CPU time sees what is used", "cgroups of its own with cpu (v2) or cpuacct (v1)"}
	checkReport = check{"complete report", "probe", "every check above was made, once, to its end", "a machine that lets the probe run to its end; the detail says what ended it. A report that is cut is a defect, please report it"}
)

// allChecks returns all checks in the order of the report.
func allChecks() []check {
	all := append([]check(nil), checks...)
	return append(all, checkMemory, checkEnd, checkCPU, checkReport)
}
