package mcp

import (
	"time"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/wellknown"
)

// DefaultMaxMessageBytes is the default of Config.MaxMessageBytes: 16 MiB, as for gRPC.
const DefaultMaxMessageBytes = 16 << 20

// Limits on requests and sessions. Package ingress limits connections and the time for a
// request's header.
const (
	maxHeaderBytes = 16 << 10
	bodyTimeout    = 30 * time.Second // for a request's body to arrive
	idleTimeout    = 2 * time.Minute  // between two requests on a connection
	// A client that does not read for this long is dropped.
	writeTimeout = 30 * time.Second
	// keepaliveInterval is the time between two comments in the stream of a silent call.
	keepaliveInterval = 15 * time.Second
	// leaveTimeout is how long clients have to leave their connections before a stop closes them: a close loses a
	// request that is on its way. They need one round trip, and close idle connections on their own: Node's fetch after
	// 4 s (undici, keepAliveTimeout), Python's httpx after 5 s (keepalive_expiry).
	leaveTimeout   = 6 * time.Second
	lingerInterval = 20 * time.Millisecond
	// maxCalls is the maximum number of requests under way on a connection without HTTP.
	// With HTTP each request has its own connection.
	maxCalls = 64
	// maxUnread bounds what waits in memory for a client without HTTP that does not read: answers, and calls that
	// read. Beyond it no further message is read from the connection.
	maxUnread = 4
	// maxSmall is the maximum size of messages other than tools/call, and of the _meta of
	// any message. Sessions keep some of this data until they end.
	maxSmall = 64 << 10
	// Sessions of all tenants, of one tenant, and of one principal. A new session beyond a limit replaces the
	// session that has been idle for longest, see sessions.makeRoom.
	maxSessions          = 1536
	maxTenantSessions    = 1024
	maxPrincipalSessions = 256
	// maxSessionIdle ends a session without requests and open streams.
	maxSessionIdle = time.Hour
)

// Limits on one answer, since it goes into a model's context.
const (
	// maxText is how many bytes of each text in a result are shown. The last maxTail bytes
	// of these are the text's end, where errors usually are.
	maxText = 64 << 10
	maxTail = 16 << 10
	// maxLinks is the maximum number of artifacts that a result links to.
	maxLinks = 100
	// maxPiece is how many bytes of a resource one read returns. The answer has the URI of
	// the next piece.
	maxPiece = 1 << 20
	// maxWhole is the size up to which one read returns all of a skill's file, since hosts
	// compare the file with its digest. It is the limit of MCP's Skills extension for a skill.
	maxWhole = skill.MaxListedBytes
)

// Limits on listings of skills and of their directories.
const (
	maxListedSkills = 100 // in one answer
	// After so many bytes of entries an answer ends. One entry has at most 2 MiB: 512 files
	// with URIs of 3 KiB, and 256 KiB of frontmatter.
	maxListedBytes = 256 << 10
	maxChildren    = 200 // of a directory in one answer
	// skillsTTL is how long a host may use an entry without asking again, in milliseconds. A
	// change is also notified, and shows in the digests.
	skillsTTL = 60_000
)

// Limits on the published index and its artifacts.
const (
	maxPublishing = 4               // requests under way of one tenant
	publishTime   = 5 * time.Minute // of one request
	// Memory of one request: the index as entries and as text, or an archive's compressor (1 MiB).
	publishBytes = 2 * wellknown.MaxIndexBytes
)

// Limits on progress notifications.
const (
	progressInterval = 100 * time.Millisecond // between two notifications of a call
	maxProgressText  = 4 << 10                // bytes in one notification; older text is dropped
)
