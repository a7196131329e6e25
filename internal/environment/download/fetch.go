package download

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// Bounds of what one build downloads.
const (
	maxPageBytes  = 64 << 20  // bytes of one project page
	maxFetches    = 20_000    // requests of one build, pages and files together
	maxFiles      = 200_000   // that pages name
	maxFilesText  = 128 << 20 // bytes of their URLs and names; 200,000 files of an ordinary index have a third of it
	maxRedirects  = 3         // of one request
	dialTimeout   = 10 * time.Second
	headerTimeout = 30 * time.Second
)

// StallTimeout is the usual Config.Stall.
const StallTimeout = 60 * time.Second

// Config says where the files of one build come from.
type Config struct {
	// Index is the package index, or the registry of Node packages. Its user and password go to it alone.
	Index *url.URL
	// Registry says that Index is a registry of Node packages.
	Registry bool
	// Sources lets builds see source distributions of an index. Without it they see wheels only.
	Sources  bool
	MaxBytes int64          // of all downloads
	Stall    time.Duration  // a download without a byte for this long fails; usually StallTimeout
	Roots    *x509.CertPool // authorities of certificates; nil: the machine's
	Dial     Dial           // nil: directly
}

// A Fetcher is all that a build can reach: project pages of the configured index
// and the files that those pages name.
// One build has one Fetcher, and Close comes after the build. All limits count for the whole
// build.
type Fetcher struct {
	index    *url.URL // without credentials, its path ends in a slash
	user     *url.Userinfo
	sources  bool // source distributions, too
	registry bool // of Node packages; errors name its key, and a user without a password is a token
	maxBytes int64
	stall    time.Duration
	client   *http.Client
	connect  Dial
	large    chan struct{} // the turn of large answers

	// mu guards the fields below. The requests of one build run in up to maxRelayed
	// goroutines.
	mu sync.Mutex
	// Files are only appended, so the number in a link stays valid until the build ends.
	files   []listedFile
	text    int              // bytes of files
	fetches int              // requests to the index and to file hosts
	bytes   int64            // of all bodies, pages included
	private bool             // the index is on a private network
	failed  error            // the first thing that went wrong with the index
	offers  map[string]Offer // by project; one for each page that was read
}

// A listedFile is a file that a page names. It is kept until the build ends.
type listedFile struct {
	url      string
	name     string
	metadata bool // NAME.metadata is there, too
}

// A Dial connects to a destination, a name or an address with a port. It calls check with each address before the
// destination learns of the connection, and the connection fails with check's error.
type Dial func(ctx context.Context, to string, check func(netip.AddrPort) error) (net.Conn, error)

// New makes a Fetcher for one build.
// Transport.Proxy stays nil, because a proxy from the environment would resolve names itself
// and checkAddress would not see the addresses: see Config.Dial. DisableCompression makes the bytes that are
// counted the bytes that arrive.
func New(c Config) *Fetcher {
	base := *c.Index
	base.User = nil
	base.Path = strings.TrimSuffix(base.Path, "/") + "/"
	f := &Fetcher{
		index: &base, user: c.Index.User, sources: c.Sources, registry: c.Registry,
		maxBytes: c.MaxBytes, stall: c.Stall, connect: c.Dial, large: make(chan struct{}, 1),
	}
	if f.connect == nil {
		f.connect = direct
	}
	f.client = &http.Client{
		CheckRedirect: f.checkRedirect,
		Transport: &http.Transport{
			DialContext: f.dial, TLSClientConfig: &tls.Config{RootCAs: c.Roots}, ForceAttemptHTTP2: true,
			DisableCompression: true, TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: min(headerTimeout, c.Stall),
			MaxResponseHeaderBytes: 64 << 10, MaxConnsPerHost: maxRelayed,
		},
	}
	return f
}

// Close frees the connections.
func (f *Fetcher) Close() { f.client.CloseIdleConnections() }

// A Response answers one request of the sandbox.
type Response struct {
	status int    // of HTTP
	kind   string // Content-Type
	length int64  // bytes; -1: not known
	body   io.ReadCloser
}

var (
	// A normalized project name (PEP 503): no dots and no capitals, so no path can climb out
	// of the index. pip asks by normalized names.
	projectPath = lazyregexp.New(`^/simple/([a-z0-9](?:[a-z0-9-]{0,126}[a-z0-9])?)/$`)
	filePath    = lazyregexp.New(`^/file/([0-9]{1,9})/([^/]+)$`)
)

// Get answers one request of the sandbox: of pip, or of npm if the Fetcher is for a registry. A path that
// is neither a project nor a file that a page has named is a 404, and no request leaves the daemon. The
// caller closes the response's body, as the Relay does.
func (f *Fetcher) Get(ctx context.Context, path string) Response {
	if f.registry {
		return registry{f}.get(ctx, path)
	}
	if m := projectPath.FindStringSubmatch(path); m != nil {
		return f.page(ctx, m[1])
	}
	if m := filePath.FindStringSubmatch(path); m != nil {
		n, err := strconv.Atoi(m[1])
		name, uerr := url.PathUnescape(m[2])
		if err == nil && uerr == nil {
			return f.file(ctx, n, name)
		}
	}
	return status(http.StatusNotFound)
}

func status(code int) Response {
	return Response{status: code, kind: "text/plain", length: 0, body: http.NoBody}
}

// page answers a request for a project's page. A project that the index doesn't have is a
// plain 404: pip tries its other sources. Every other failure is kept for explain, which
// reports it if pip fails.
func (f *Fetcher) page(ctx context.Context, project string) Response {
	r, body, err := f.open(ctx, f.index.JoinPath(project, "/"), "text/html")
	if err != nil {
		return f.fail(err)
	}
	defer body.Close()
	switch {
	case r.StatusCode == http.StatusNotFound:
		return status(http.StatusNotFound)
	case r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden:
		return f.fail(fmt.Errorf("it refuses the credentials, or needs some (%s)", r.Status))
	case r.StatusCode != http.StatusOK:
		return f.fail(fmt.Errorf("it answered %s", r.Status))
	case !strings.Contains(r.Header.Get("Content-Type"), "html"):
		return f.fail(fmt.Errorf("the page of %s has the type %.80q, not the HTML of PEP 503", project, r.Header.Get("Content-Type")))
	}
	a := f.newAnswer(ctx)
	if err := f.rewrite(a, project, body, r.Request.URL); err != nil {
		a.Close()
		return f.fail(err)
	}
	return Response{http.StatusOK, "text/html; charset=utf-8", a.length(), a}
}

// rewrite writes the page that the sandbox sees. It has the links of the index's page, each to the relay.
func (f *Fetcher) rewrite(to io.Writer, project string, page io.Reader, at *url.URL) error {
	if _, err := io.WriteString(to, pageBegin); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: page, N: maxPageBytes + 1}
	var o Offer
	err := readPage(limited, at, func(l link) error {
		o.Add(l.name)
		if !f.sources && !isWheel(l.name) {
			return nil
		}
		number, err := f.keep(l)
		if err != nil {
			return err
		}
		if err := l.write(to, number); err != nil {
			return fmt.Errorf("the page of %s has %w", project, err)
		}
		return nil
	})
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("the page of %s is longer than %d bytes", project, int64(maxPageBytes))
	}
	if err != nil {
		return err
	}
	f.noteOffer(project, o)
	_, err = io.WriteString(to, pageEnd)
	return err
}

// noteOffer remembers the files that the index lists for a project, for the explanation of a failure.
func (f *Fetcher) noteOffer(project string, o Offer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.offers == nil {
		f.offers = map[string]Offer{}
	}
	f.offers[project] = Offer{strings.Clone(o.Wheel), strings.Clone(o.Sdist)}
}

// Offered returns the files that the index lists for a project, if its page was read.
func (f *Fetcher) Offered(project string) Offer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offers[project]
}

// keep remembers a file of a page and returns its number.
func (f *Fetcher) keep(l link) (number int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text += len(l.url) + len(l.name); f.text > maxFilesText {
		return 0, fmt.Errorf("its pages have more than %d bytes of links", maxFilesText)
	}
	if len(f.files) >= maxFiles {
		return 0, fmt.Errorf("its pages name more than %d files", maxFiles)
	}
	// Copies: the originals are parts of larger texts.
	f.files = append(f.files, listedFile{strings.Clone(l.url), strings.Clone(l.name), l.metadata != ""})
	return len(f.files) - 1, nil
}

// file answers a request for the file with number n. The name must be the listed one, or the
// listed one with .metadata if the page promised that file (PEP 658).
func (f *Fetcher) file(ctx context.Context, n int, name string) Response {
	f.mu.Lock()
	var l listedFile
	if n < len(f.files) {
		l = f.files[n]
	}
	f.mu.Unlock()
	if l.name == "" || name != l.name && (!l.metadata || name != l.name+".metadata") {
		return status(http.StatusNotFound)
	}
	u, err := url.Parse(l.url)
	if err != nil {
		return f.fail(fmt.Errorf("%s: %w", l.name, err))
	}
	if name != l.name {
		u.Path, u.RawPath = u.Path+".metadata", ""
	}
	if u.Scheme != "https" && !f.isIndex(u) {
		return f.fail(fmt.Errorf("%s is at %s: want https", l.name, u.Redacted()))
	}
	r, body, err := f.open(ctx, u, "*/*")
	if err != nil {
		return f.fail(fmt.Errorf("%s: %w", l.name, err))
	}
	if r.StatusCode != http.StatusOK {
		body.Close()
		if name != l.name && r.StatusCode == http.StatusNotFound {
			return status(http.StatusNotFound)
		}
		return f.fail(fmt.Errorf("%s: %s answered %s", l.name, u.Host, r.Status))
	}
	return Response{http.StatusOK, "application/octet-stream", r.ContentLength, body}
}

// isIndex reports whether a URL has the scheme, host and port of the index.
// Only such a URL gets the credentials, and may use http.
func (f *Fetcher) isIndex(u *url.URL) bool {
	return u.Scheme == f.index.Scheme && hostPort(u) == hostPort(f.index)
}

// hostPort makes the port explicit, so that https://host/ and https://host:443/ are the same.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// open requests a URL. Credentials go to the index only. The body counts against the bounds.
// It ends in an error when the server stops sending.
// The caller closes the body: close stops the timer and the request's context.
func (f *Fetcher) open(ctx context.Context, u *url.URL, accept string) (*http.Response, io.ReadCloser, error) {
	f.mu.Lock()
	f.fetches++
	over := f.fetches > maxFetches
	f.mu.Unlock()
	if over {
		return nil, nil, fmt.Errorf("more than %d requests", maxFetches)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "skillrund")
	if f.user != nil && f.isIndex(u) {
		password, given := f.user.Password()
		if f.registry && !given {
			req.Header.Set("Authorization", "Bearer "+f.user.Username())
		} else {
			req.SetBasicAuth(f.user.Username(), password)
		}
	}
	r, err := f.client.Do(req)
	if err != nil {
		cancel(nil)
		// url.Error's text has the URL, and a redirect may have put a signed URL there.
		var wrapped *url.Error // names the whole URL
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, nil, err
	}
	b := &body{fetcher: f, from: r.Body, ctx: ctx, cancel: cancel}
	// Until here ResponseHeaderTimeout bounded the wait. From here each Read does.
	b.timer = time.AfterFunc(f.stall, func() { cancel(errStalled) })
	b.timer.Stop()
	return r, b, nil
}

var errStalled = errors.New("it stalled")

// checkRedirect lets the index and file hosts redirect to themselves only.
// net/http would keep the Authorization header for a subdomain of the index (see
// http.Client). The scheme must stay, too: https must not become http.
func (f *Fetcher) checkRedirect(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case req.URL.Scheme != from.Scheme || hostPort(req.URL) != hostPort(from):
		return fmt.Errorf("it redirects to another host, %s, which is not followed", req.URL.Host)
	}
	return nil
}

// dial connects to the index at any address. It connects to files at public addresses only: a
// page of the index must not make the daemon send requests to its own network. An index in a
// private network may name files there.
func (f *Fetcher) dial(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, min(dialTimeout, f.stall))
	defer cancel()
	if address == hostPort(f.index) {
		return f.connect(ctx, address, f.notePrivate)
	}
	return f.connect(ctx, address, f.checkAddress)
}

// direct is the Dial without a proxy. Control runs after the name was resolved and before connect(2), for each address
// that is tried. So a name can't resolve to a harmless address for the check and to another one for the connection (DNS
// rebinding).
func direct(ctx context.Context, to string, check func(netip.AddrPort) error) (net.Conn, error) {
	d := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err == nil {
			err = check(at)
		}
		return err
	}}
	return d.DialContext(ctx, "tcp", to)
}

// notePrivate remembers whether the index's address is private (RFC 1918, RFC 4193). The
// page is read before any of its files, so it is known when checkAddress needs it.
func (f *Fetcher) notePrivate(a netip.AddrPort) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.private = a.Addr().Unmap().IsPrivate()
	return nil
}

// Addresses that netip does not classify, and that no public file has.
var (
	reserved = []netip.Prefix{
		netip.MustParsePrefix("100.64.0.0/10"), // carriers, and the metadata of some clouds (RFC 6598)
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("fec0::/10"), // site-local (RFC 3879)
		// Addresses that hold one of IPv4: of a local translator (RFC 8215), Teredo, 6to4.
		netip.MustParsePrefix("64:ff9b:1::/48"),
		netip.MustParsePrefix("2001::/32"),
		netip.MustParsePrefix("2002::/16"),
	}
	// translated holds an address of IPv4 in its last four bytes (RFC 6052). A machine without
	// IPv4 reaches public files by it.
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

// meant is the address that a connection to ip reaches.
// An IPv4 address in an IPv6 one (::ffff:0:0/96) reaches the IPv4 address; Unmap turns it
// back.
func meant(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if translated.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}

// checkAddress refuses an address that is not public. A private one is allowed if the index
// is private, too. Loopback and link-local addresses are refused in any case: 169.254.169.254 is the
// metadata service of clouds.
func (f *Fetcher) checkAddress(at netip.AddrPort) error {
	ip := meant(at.Addr())
	f.mu.Lock()
	private := f.private
	f.mu.Unlock()
	if !ip.IsValid() || ip.IsLoopback() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.IsInterfaceLocalMulticast() ||
		slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(ip) }) || ip.IsPrivate() && !private {
		return fmt.Errorf("it names a file at %s, an address that is not allowed", at.Addr())
	}
	return nil
}

// fail keeps the first error for the caller of the build; the sandbox only learns
// that there was one. It does not keep the error of a download that the end of the build cut
// off: the index is not to blame for it.
func (f *Fetcher) fail(err error) Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil && !errors.Is(err, context.Canceled) {
		f.failed = &IndexError{Index: f.index.String(), Reason: err.Error(), Registry: f.registry}
	}
	return status(http.StatusBadGateway)
}

// Err returns the first failure of the build's downloads, an *IndexError, or nil. A build can succeed in
// spite of it: pip tries other files.
func (f *Fetcher) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// A body is a download that counts.
type body struct {
	fetcher *Fetcher
	from    io.ReadCloser
	ctx     context.Context // of the download
	cancel  context.CancelCauseFunc
	timer   *time.Timer // runs during a Read; cancels the download
}

// Read counts the bytes of all downloads of the build together. An error other than the end is
// the reason that the build gives for its failure.
func (b *body) Read(p []byte) (int, error) {
	// The timer runs only while the server is waited for. Between two Reads the sandbox takes
	// the bytes, and a slow build must not be blamed on the server; environments.wall_time
	// bounds it.
	b.timer.Reset(b.fetcher.stall)
	n, err := b.from.Read(p)
	b.timer.Stop()
	b.fetcher.mu.Lock()
	b.fetcher.bytes += int64(n)
	over := b.fetcher.bytes > b.fetcher.maxBytes
	b.fetcher.mu.Unlock()
	if over {
		err = fmt.Errorf("more than %d bytes of downloads", b.fetcher.maxBytes)
	}
	if errors.Is(err, context.Canceled) {
		err = context.Cause(b.ctx) // errStalled, or the build is over
	}
	if err != nil && err != io.EOF {
		b.fetcher.fail(err)
	}
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.from.Close()
}
