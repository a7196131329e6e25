// Package mount makes the file systems of sandboxes: the root file systems, which sandboxes
// share, and the mounts of each sandbox and of each execution.
//
// # Roots
//
// A Root is a directory tree that the daemon mounts once, when it starts: NewHostRoot shows the
// host's /usr and copies a few files of /etc, NewImageRoot lays generated files over an unpacked
// image. A Root is read-only and does not change while sandboxes use it.
//
// # Inodes of its own
//
// A program can watch (inotify) and lock (flock, fcntl) every file that it can open for
// reading. Both show the program how other processes use the same inode, which can be a
// file of the host or of a skill. So each sandbox sees shared files through its own
// read-only overlays. An overlay makes a new inode for each file of its layers, and no
// other mount has that inode. The pages stay shared. Root.Layers is the table of these
// overlays; binds of an execution get one each. All other file systems of a sandbox are its own.
//
// # Detached mounts
//
// A mount is made detached (fsmount(2), open_tree(2)): no process sees it. The caller sends the
// descriptors of a List to the sandbox's init, which attaches the mounts inside. libcontainer
// takes paths instead; for it, Staging.ShowRoot attaches a root in the daemon's own mount
// namespace until the container has its copy.
//
// # Owners
//
// Snapshots of skills belong to one id on disk, and each sandbox has another id. The mounts of
// files that are to appear as the script's are id-mapped by the sandbox's user namespace
// (mount_setattr(2), MOUNT_ATTR_IDMAP), so nothing is copied or changed on disk.
//
// # The life of a Staging
//
// A Staging is one tmpfs for each sandbox. It holds the upper layer of the workspace and every
// directory at which the daemon attaches something for this sandbox.
//
//	NewStaging   when the sandbox is made, before a request is known
//	RootTrees    the root and /dev, for the maker of the sandbox
//	Mounts       the workspace and the binds of one execution, once
//	Close        one unmount removes all of it
//
// The package knows neither sandboxes nor their processes.
package mount
