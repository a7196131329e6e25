package skill

const (
	// Entries of one root. More are an error of the root.
	maxRootNames = 10_000
	// Watched directories of all roots, so that skills can't use up fs.inotify.max_user_watches
	// (inotify(7)).
	maxWatches   = 8192
	scanAttempts = 3 // attempts at a folder that changes during the read
)
