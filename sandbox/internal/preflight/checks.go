package preflight

// A check is one boundary that the probe tries from inside a sandbox. pid1/init_probe.c
// reports it by the same name. The name never changes, because configurations use it. why is the
// purpose and how the remedy; skillrund --doctor prints them.
type check struct{ name, group, why, how string }

// Remedies that several checks share.
const (
	howFilter = "a kernel with CONFIG_SECCOMP_FILTER, and libseccomp 2.5 or later; if you have that, this is a defect of skillrun: please report it"
	howKernel = "a kernel of 5.19 or later without patches or settings that remove this protection; if you have that, this is a defect of skillrun: please report it"
	howMounts = "a kernel and a container runtime that do not change skillrun's mounts; if you have that, this is a defect of skillrun: please report it"
	howLimits = "cgroups that only skillrun writes to (Delegate=yes under systemd), with the controllers memory and pids"
)

// checks are the checks that the probe's program makes, in the order of the report. The
// program makes the last one last.
var checks = []check{
	{"nothing inherited", "identity", "a script has no open file and no socket of the daemon", howKernel},
	{"environment", "identity", "a script has no environment variable of the daemon", howKernel},
	{"no capabilities", "identity", "a script has none of root's capabilities", howKernel},
	{"no new privileges", "identity", "a program that a script starts gains no privileges", howKernel},
	{"system call filter", "kernel", "a script reaches only the part of the kernel that it needs", howFilter},
	{"unprivileged ids", "identity", "a script is not root and in no other group, not even inside its sandbox", howKernel},
	{"ids of its own", "identity", "files and processes of a sandbox belong to no account of the machine", "ids.first and ids.count with a range that no account uses and that is mapped where skillrund runs"},
	{"resource limits", "limits", "each process has limits of open files, core dumps, locked memory and queues", howKernel},
	{"no core dumps", "limits", "a crash in a sandbox starts no program of the machine, and a script can't change that", "a kernel.core_pattern that does not name a socket (sysctl kernel.core_pattern=core), and " + howFilter},
	{"first to go when memory is short", "limits", "if memory is short, the kernel ends a script before a service, and a script can't change that", howMounts},

	{"user namespace of its own", "namespaces", "root inside a sandbox has no rights outside", howKernel},
	{"mnt namespace of its own", "namespaces", "each sandbox has its own file tree", howKernel},
	{"pid namespace of its own", "namespaces", "a sandbox has no numbers for processes outside", howKernel},
	{"net namespace of its own", "namespaces", "a sandbox has its own loopback and no other network", howKernel},
	{"ipc namespace of its own", "namespaces", "sandboxes share no System V IPC and no message queues", howKernel},
	{"uts namespace of its own", "namespaces", "a script does not see the host's name", howKernel},
	{"cgroup namespace of its own", "namespaces", "a script does not see the cgroups of the machine", howKernel},
	{"time namespace of its own", "namespaces", "a script does not see how long the machine has been up", howKernel},

	{"other processes are hidden", "processes", "a script sees only its own processes", "a kernel whose proc supports hidepid, and a /proc without mounts over parts of it"},
	{"init hides its files", "processes", "a script can't read the memory and the files of its sandbox's init", howKernel},
	{"init takes no signals", "processes", "a script can't end the init that reports its end", howKernel},

	{"loopback of the host", "network", "a script can't call services of the machine on 127.0.0.1", "a network namespace for each sandbox; to test this, lo must be up where skillrund runs"},
	{"abstract sockets of the host", "network", "a script can't call services of the machine on abstract sockets", "a network namespace for each sandbox"},
	{"sockets of the host", "network", "a script can call neither the daemon nor another service by its socket", howMounts},
	{"no way out", "network", "no interface and no route leads out of the sandbox", "a kernel that makes only lo in a new network namespace (net.core.fb_tunnels_only_for_init_net=2)"},
	{"socket families", "network", "a script gets only local, TCP and UDP sockets; other families have had many vulnerabilities", howFilter},

	{"read-only root", "files", "a script can't change files that all sandboxes share", howMounts},
	{"mounts", "files", "no mount allows setuid programs or devices, and only the script's own mounts are writable", howMounts},
	{"files of the host are hidden", "files", "a script sees no secrets, sockets or state of the machine", howMounts},
	{"nothing else of the host", "files", "of the machine's directories a script sees only /usr and a few files of /etc", howMounts},
	{"devices", "files", "/dev has only null, zero, full, random and urandom", howMounts},
	{"inodes of its own", "files", "locks and watches of a script show nothing about other sandboxes or the machine", "a kernel of 5.19 or later with CONFIG_OVERLAY_FS (modprobe overlay), and a /usr that is not two overlays deep already"},
	{"new devices", "files", "a script can't make a device node for a disk or for memory", howFilter},
	{"masked files of the kernel", "files", "a script does not learn addresses, logs and hardware of the machine", "a /proc without mounts over parts of it, and a kernel that can mount files over others"},
	{"settings of the kernel", "files", "a script can't change sysctl, core_pattern and sysrq", "a /proc/sys that can be mounted read-only"},
	{"writable workspace", "files", "a script can write files in /workspace", "a kernel of 5.19 or later with CONFIG_OVERLAY_FS (modprobe overlay)"},
	{"disk limit", "limits", "a script can't fill the machine's memory with files", "a kernel with CONFIG_TMPFS and its size option"},
	{"file limit", "limits", "a script can't fill the machine's memory with empty files", "a kernel with CONFIG_TMPFS and its nr_inodes option"},

	{"processes in new namespaces", "kernel", "a script can't start processes in new namespaces, which most recent exploits of the kernel needed", howFilter},
	{"terminals", "kernel", "a script can't type into a terminal of the machine", howFilter},
	{"other architectures", "kernel", "system calls of other architectures don't bypass the filter", howFilter},
	{"priority inheritance", "kernel", "a script can't reach the futex operations that were exploited", howFilter},
	{"mounting", "kernel", "a script can't remove masks and read-only mounts", howFilter},
	{"new namespaces", "kernel", "a script can neither gain capabilities in a new namespace nor enter another one", howFilter},
	{"tracing", "kernel", "a script can't read or control another process, or fake its end", howFilter},
	{"keyrings", "kernel", "a script can't use the kernel's keys, which have global numbers and outlive a process", howFilter},
	{"bpf", "kernel", "a script can't load a program into the kernel", howFilter},
	{"performance counters", "kernel", "a script can't measure other processes", howFilter},
	{"io_uring", "kernel", "a script can't open files or sockets without the filter", howFilter},
	{"userfaultfd", "kernel", "a script can't stop the kernel in the middle of a copy", howFilter},
	{"other kernels and modules", "kernel", "a script can't load code into the kernel", howFilter},
	{"administration", "kernel", "a script can't reboot the machine or change swap, accounting and quotas", howFilter},
	{"clocks", "kernel", "a script can't set the machine's time", howFilter},
	{"host name", "kernel", "a script can't set host names", howFilter},
	{"file handles", "kernel", "a script can't open a file without access to its directories", howFilter},
	{"changing ids", "kernel", "a script can't become another user", howFilter},
	{"changing capabilities", "kernel", "a script can't gain capabilities", howFilter},
	{"queues and shared memory", "kernel", "a script can't use System V IPC and message queues, which have global numbers and outlive a process", howFilter},
	{"kernel log", "kernel", "a script can't read the kernel's log", howFilter},
	{"watching file systems", "kernel", "a script can't see which files others open", howFilter},
	{"page cache", "kernel", "a script can't write to pages of shared files (Dirty Pipe)", howFilter},
	{"hidden memory", "kernel", "a script can't have memory that nobody can account or inspect", howFilter},
	{"priorities", "kernel", "a script can't take processor time from its neighbours", howFilter},
	{"ports and segments", "kernel", "a script can't reach hardware ports and old modes of the processor", howFilter},
	{"socket buffers", "limits", "a script can't fill the machine's memory with data that nobody reads", howLimits + "; no cgroup.memory=nosocket on the kernel's command line"},
	{"process limit", "limits", "a fork bomb stays in its sandbox", howLimits},
}

// Checks that the daemon makes from outside, after the program's end.
var (
	checkMemory = check{"memory limit", "limits", "a script that uses too much memory ends, and no other process does", howLimits + "; on cgroup v1 a kernel that counts swap (swapaccount=1)"}
	checkEnd    = check{"everything ends", "limits", "no process outlives its execution", howLimits}
	checkCPU    = check{"CPU accounting", "limits", "the limit of CPU time counts all processor time of a script", "the controller cpu (v2) or cpuacct (v1) in skillrun's cgroups"}
	checkReport = check{"complete report", "probe", "every check above was made once, to its end", "a machine on which the probe runs to its end; if you have that, this is a defect of skillrun: please report it"}
)

// allChecks returns all checks in the order of the report.
func allChecks() []check {
	all := append([]check(nil), checks...)
	return append(all, checkMemory, checkEnd, checkCPU, checkReport)
}
