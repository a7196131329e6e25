package skill

const (
	maxRootNames = 10_000
	maxWatches   = 8192
	scanAttempts = 3 // attempts at a folder that changes during the read
)
