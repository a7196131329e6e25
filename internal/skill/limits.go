package skill

import "time"

const (
	// Entries of one root. More are an error of the root.
	maxRootNames = 10_000
	// A recursive root: entries of all directories that are searched, and levels of directories.
	maxTreeNames = 1_000_000
	maxRootDepth = 16
	// Watched directories of all roots, so that skills can't use up fs.inotify.max_user_watches
	// (inotify(7)).
	maxWatches = 8192
	// The time after which skills are read again if some directories are not watched.
	unwatchedInterval = 5 * time.Minute
	// The first pause before skills are read again after an error that may pass; each further pause is twice as long,
	// up to unwatchedInterval.
	unreadInterval = 5 * time.Second

	// Kept versions of all skills that one tenant pushed: the daemon has the newest one of each skill in
	// memory.
	maxOwnVersions = 2000
	maxSourceBytes = 2048    // of the URL that a pushed skill comes from
	diskBlock      = 4 << 10 // the unit of DiskBytes

	scanAttempts = 3 // attempts at a folder that changes during the read
)
