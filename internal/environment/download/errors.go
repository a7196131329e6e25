package download

import "fmt"

// IndexError: the index can't be reached, or gave no usable answer.
type IndexError struct {
	Index  string // without credentials
	Reason string
	// Registry says that it is the registry of Node packages.
	Registry bool
	// Key is the configuration key of a directory with packages, which Index is then.
	Key string
}

func (e *IndexError) Error() string {
	what, key := "package index", "environments.index"
	switch {
	case e.Key != "":
		what, key = "directory", e.Key
	case e.Registry:
		what, key = "registry", "environments.registry"
	}
	return fmt.Sprintf("%s %s: %s; see %s in the daemon's configuration", what, e.Index, e.Reason, key)
}
