// Package cgroup makes the cgroups of sandboxes, sets and verifies their limits, reads their
// counters, and ends every process in them. It hides that there are two versions of cgroups.
//
// # Where the cgroups are
//
// A Hierarchy is the place beneath which a daemon makes its cgroups. On v2 it is one
// directory. On v1 each controller has its own tree, and the Hierarchy is one directory in
// each. A Group is one cgroup in that place: one directory, or one per controller.
//
//	Hierarchy           the daemon's own cgroup, or Config.CgroupParent
//	  skillrun-daemon     v2 only: the daemon. A cgroup with processes has no controllers to pass on
//	  skillrun-NAME       one run of the daemon; on v2 it has the rules for devices
//	    _zygote
//	    _SLOT             a sandbox: its init and its processes
//	    helper-NAME-N     a helper of the daemon, such as the carrier of a tenant's packets
//
// Names are all that a Group holds. So a daemon that finds the names of another one's groups
// on disk can clear them (Save and Load), and a Group whose cgroup is gone does no harm.
//
// # How a process enters
//
// The daemon opens the cgroup.procs files of a Group (ProcsFiles) and passes them to the
// process that enters. So the process needs no path, and no right to any other cgroup.
// libcontainer does the same for the sandboxes that it makes (Resources).
//
// # Limits and counters
//
// The kernel may round a limit, or take it and not apply it. So limits are read back: LimitCPU
// does it at once, Verify for the others, before a program runs. On v1 an OOMNotifier says
// that memory ran out; OOMKills says whether the kernel killed a process for it. Counters of v1 are
// less exact than counters of v2: CPUUsage corrects the CPU times.
//
// # The end
//
// Kill signals each process once. A process that forks at that moment can leave a child, and a
// dying process leaves its cgroup late. So Clear and RemoveSoon try again until the kernel
// removes the directory: it removes only a cgroup without processes.
package cgroup
