// Package seccomp compiles the system call filters of sandboxes.
//
// Three files list the calls that a process may make, with reasons. seccomp.yaml is for
// scripts and for a sandbox's init. seccomp_zygote.yaml and seccomp_python.yaml list further
// calls, for the zygotes. Compile turns them into four programs of classic BPF, which init, the zygote and
// the fork server load with seccomp(2). The kernel then runs the program at each system call.
//
// A filter lists the allowed calls. A call without a rule answers ENOSYS, as on an older
// kernel, so that the C library falls back to another call; a call of another architecture
// (int 0x80, x32) answers ENOSYS, too. Calls under deny answer EPERM. No rule kills a process.
//
// A process keeps the filters that it inherits, and the kernel takes the strictest answer of
// all. Each zygote is an ancestor of scripts. So the filter of a zygote must allow every call
// that a later filter allows; a test compares them.
//
// libseccomp writes the programs. It merges equal comparisons of different calls wrongly, so
// each call with conditions on its arguments is compiled alone, and join.go joins the
// programs (docs/decisions/0016). A test searches the joined programs for a call whose answer differs from
// the files. It knows the files only, and neither libseccomp nor join.go.
package seccomp
