package download

import (
	"fmt"
	"html"
	"io"
	"net/url"
	"path"
	"strings"

	xhtml "golang.org/x/net/html"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// A link is a file that a page of the index names.
type link struct {
	url      string  // absolute, without a fragment
	name     string  // of the file
	hash     string  // "sha256=...", or empty
	python   string  // data-requires-python, a specifier (PEP 503); empty if it is none
	yanked   *string // data-yanked, the reason, which may be empty (PEP 592); nil: not yanked
	metadata string  // data-core-metadata: the page says that NAME.metadata is there
}

// Bounds of a page. The daemon holds where its links lead until the build ends.
const (
	maxLinks    = 100_000   // other links count, too
	maxTag      = 256 << 10 // bytes of a tag, or of the text between two tags
	maxLinkText = 4 << 10   // bytes of a link with its attributes; a longer one is left out
	maxFileName = 255       // bytes; no file system has longer names
	maxPython   = 256       // bytes of data-requires-python
)

var (
	fileName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._+!-]*$`)
	linkHash = lazyregexp.New(`^(md5|sha1|sha224|sha256|sha384|sha512)=[0-9a-fA-F]{32,128}$`)
	// The characters of specifiers (PEP 440). pip ignores a text that is none, too.
	specifiers = lazyregexp.New(`^[A-Za-z0-9 .,<>=!~*+_()-]*$`)
	// PEP 658: "true" or a hash of the metadata file.
	metaHash = lazyregexp.New(`^(true|(sha256|sha384|sha512)=[0-9a-f]{64,128})$`)
)

// isWheel and isSource tell files apart by their names.
func isWheel(name string) bool { return strings.HasSuffix(name, ".whl") }
func isSource(name string) bool {
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".zip")
}

// An Offer describes the files that a source has for a package: the names of its last wheel and its last source
// distribution.
type Offer struct{ Wheel, Sdist string }

// Add adds a file to the offer, by its name.
func (o *Offer) Add(file string) {
	switch {
	case isWheel(file):
		o.Wheel = file
	case isSource(file):
		o.Sdist = file
	}
}

// readPage calls take with each link of a project's page (PEP 503). It leaves out links that are not
// distributions. An error of take ends the reading.
// The tokenizer holds one tag at a time. A parser would build the tree of a 64 MiB page.
func readPage(r io.Reader, at *url.URL, take func(link) error) error {
	count, moved := 0, false
	z := xhtml.NewTokenizer(r)
	z.SetMaxBuf(maxTag)
	for {
		switch z.Next() {
		case xhtml.ErrorToken:
			switch err := z.Err(); err {
			case io.EOF:
				return nil
			case xhtml.ErrBufferExceeded:
				return fmt.Errorf("its page has a tag or a text of more than %d bytes", maxTag)
			default:
				return err
			}
		case xhtml.StartTagToken, xhtml.SelfClosingTagToken:
			t := z.Token()
			switch t.Data {
			// The first base element moves relative links (PEP 503 pages are HTML 5). checkAddress
			// and file judge the result like any other URL. Each link is resolved against it, so it must
			// not be long.
			case "base":
				href, ok := attribute(t, "href")
				if !ok || moved {
					continue
				}
				if len(href) > maxLinkText {
					return fmt.Errorf("its page has a base of more than %d bytes", maxLinkText)
				}
				moved = true
				if u, err := at.Parse(href); err == nil {
					at = u
				}
			case "a":
				if count++; count > maxLinks {
					return fmt.Errorf("its page has more than %d links", maxLinks)
				}
				l, ok := newLink(t, at)
				if !ok || l.size() > maxLinkText {
					continue
				}
				if err := take(l); err != nil {
					return err
				}
			}
		}
	}
}

// size is the number of bytes of a link's texts.
func (l link) size() int {
	n := len(l.url) + len(l.name) + len(l.hash) + len(l.python) + len(l.metadata)
	if l.yanked != nil {
		n += len(*l.yanked)
	}
	return n
}

// attribute returns the first attribute with a name, as a browser would (HTML 5).
func attribute(t xhtml.Token, name string) (string, bool) {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// newLink returns the link of an a element, or false if it isn't a file that pip could
// install. Credentials in a link are dropped: only the operator's go to the index.
func newLink(t xhtml.Token, at *url.URL) (link, bool) {
	href, _ := attribute(t, "href")
	u, err := at.Parse(strings.TrimSpace(href))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return link{}, false
	}
	l := link{name: path.Base(u.Path)}
	if len(l.name) > maxFileName || !fileName.MatchString(l.name) || !isWheel(l.name) && !isSource(l.name) {
		return link{}, false
	}
	if linkHash.MatchString(u.Fragment) {
		l.hash = u.Fragment
	}
	u.Fragment, u.RawFragment, u.User = "", "", nil
	l.url = u.String()
	if v, _ := attribute(t, "data-requires-python"); len(v) <= maxPython && specifiers.MatchString(v) {
		l.python = v
	}
	if why, ok := attribute(t, "data-yanked"); ok {
		l.yanked = &why
	}
	// PEP 714 renamed the attribute of PEP 658. Old indexes have the old name.
	for _, name := range []string{"data-core-metadata", "data-dist-info-metadata"} {
		if v, ok := attribute(t, name); ok && metaHash.MatchString(v) {
			l.metadata = v
			break
		}
	}
	return l, true
}

// The begin and the end of the page that the sandbox sees.
const (
	pageBegin = "<!DOCTYPE html>\n<html><body>\n"
	pageEnd   = "</body></html>\n"
)

// write writes a link as the sandbox sees it: to the relay. Nothing of the index's own text is in it.
// number is the link's in the Fetcher's list. The hash stays in the
// fragment, and pip checks the download against it; the daemon doesn't.
func (l link) write(w io.Writer, number int) error {
	var b strings.Builder
	href := fmt.Sprintf("/file/%d/%s", number, url.PathEscape(l.name))
	if l.hash != "" {
		href += "#" + l.hash
	}
	fmt.Fprintf(&b, "<a href=\"%s\"", html.EscapeString(href))
	if l.python != "" {
		fmt.Fprintf(&b, " data-requires-python=\"%s\"", html.EscapeString(l.python))
	}
	if l.yanked != nil {
		fmt.Fprintf(&b, " data-yanked=\"%s\"", html.EscapeString(*l.yanked))
	}
	if l.metadata != "" {
		fmt.Fprintf(&b, " data-core-metadata=\"%s\" data-dist-info-metadata=\"%s\"", l.metadata, l.metadata)
	}
	fmt.Fprintf(&b, ">%s</a><br>\n", html.EscapeString(l.name))
	_, err := io.WriteString(w, b.String())
	return err
}
