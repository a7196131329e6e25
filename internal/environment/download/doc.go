// Package download is everything that a build of packages can reach. A build runs strangers' install code
// in a sandbox without a network. It asks for each file by a line on its standard output, and the daemon
// answers on its standard input (docs/decisions/0007-builds-download-through-a-relay.md).
//
// Theory of operation. A [Relay] reads the lines of one build and writes the answers. It gets them from a
// function. [Fetcher.Get] is that function for an index of Python packages or a registry of Node packages, and
// [Tarballs.Load] returns one for a directory with Node packages.
//
// The build never sends a URL. It asks for the page of a project, by name. The Fetcher reads the page from the
// configured index and rewrites it: each link becomes a number, and the build asks for files by these numbers
// (page.go, registry.go). So install code can make the daemon fetch only files that the index names. The index is
// not trusted either. It may choose hosts, but only https and public addresses count (checkAddress), redirects
// stay on their host, credentials go to the index alone, and all sizes and times have bounds.
//
// Failures. pip and npm see only an HTTP status. The Fetcher keeps the first cause, and the caller reports it
// if the build fails ([Fetcher.Err]).
package download
