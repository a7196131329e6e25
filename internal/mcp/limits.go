package mcp

import "time"

// DefaultMaxMessageBytes is the default of Config.MaxMessageBytes.
const DefaultMaxMessageBytes = 16 << 20

// Bounds on requests and sessions. How many connections there may be, and how long a
// request's header may take, says ingress.
const (
	maxHeaderBytes = 16 << 10
	bodyTimeout    = 30 * time.Second // to send its body
	idleTimeout    = 2 * time.Minute  // between two requests of a connection
	// A client that doesn't take what it is sent for so long is gone.
	writeTimeout = 30 * time.Second
	// keepaliveInterval is between two comments in a stream whose call is silent.
	keepaliveInterval = 15 * time.Second
	// maxCalls bounds the requests under way on one connection without HTTP. With
	// HTTP every request has a connection.
	maxCalls = 64
	// maxSmall bounds messages other than calls of tools, and what a call says of its
	// caller: sessions keep some of these for as long as they live.
	maxSmall = 64 << 10
	// Sessions of all principals, and of one. A new session takes the place of the one
	// that was left alone for longest, of its principal or of who has most.
	maxSessions          = 1024
	maxPrincipalSessions = 256
	// maxSessionIdle is how long a session lives without a request and without an
	// open stream.
	maxSessionIdle = time.Hour
)

// Bounds on what one answer holds: it goes into a model's context.
const (
	// maxText is how much of each text of a result is shown: its beginning, and at
	// the end maxTail of it, since errors come last.
	maxText = 64 << 10
	maxTail = 16 << 10
	// maxLinks bounds the artifacts that a result links to.
	maxLinks = 100
	// maxPiece is how much of a resource one read returns; what follows has a URI of
	// its own.
	maxPiece = 1 << 20
)

// Bounds on progress notifications.
const (
	progressInterval = 100 * time.Millisecond // between two of one call
	maxProgressText  = 4 << 10                // of one; the newest text wins
)
