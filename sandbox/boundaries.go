package sandbox

// A Boundary is something that this machine must give for sandboxes to hold.
type Boundary struct {
	Name   string
	Why    string // what it is for
	Detail string // what was found, or what is missing and how to get it
	Found  bool
}

// Boundaries probes this machine, without opening a Host.
func Boundaries(c Config) []Boundary { return nil }

func missing(all []Boundary) (errs []error) {
	return nil
}
