package environment

import (
	"fmt"
	"html"
	"io"
	"net/url"
	"path"
	"regexp"
	"strings"

	xhtml "golang.org/x/net/html"
)

// A link is a file that a page of the index names.
type link struct {
	url      *url.URL // without a fragment
	name     string   // of the file
	hash     string   // "sha256=...", or empty
	python   string   // data-requires-python
	yanked   *string  // data-yanked
	metadata string   // data-core-metadata: the page says that NAME.metadata is there
}

// maxLinks bounds the links of one page that are read.
const maxLinks = 100_000

var (
	fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+!-]{0,254}$`)
	linkHash = regexp.MustCompile(`^(md5|sha1|sha224|sha256|sha384|sha512)=[0-9a-fA-F]{32,128}$`)
	metaHash = regexp.MustCompile(`^(true|(sha256|sha384|sha512)=[0-9a-f]{64,128})$`)
)

// isWheel and isSource tell files apart by their names.
func isWheel(name string) bool { return strings.HasSuffix(name, ".whl") }
func isSource(name string) bool {
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".zip")
}

// readPage reads the links of a project's page (PEP 503). It leaves out links that are not
// distributions.
func readPage(r io.Reader, at *url.URL) ([]link, error) {
	var links []link
	z := xhtml.NewTokenizer(r)
	for {
		switch z.Next() {
		case xhtml.ErrorToken:
			if err := z.Err(); err != io.EOF {
				return nil, err
			}
			return links, nil
		case xhtml.StartTagToken, xhtml.SelfClosingTagToken:
			t := z.Token()
			switch t.Data {
			case "base":
				if href, ok := attribute(t, "href"); ok {
					if u, err := at.Parse(href); err == nil {
						at = u
					}
				}
			case "a":
				if l, ok := newLink(t, at); ok {
					if len(links) == maxLinks {
						return nil, fmt.Errorf("its page has more than %d links", maxLinks)
					}
					links = append(links, l)
				}
			}
		}
	}
}

func attribute(t xhtml.Token, name string) (string, bool) {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func newLink(t xhtml.Token, at *url.URL) (link, bool) {
	href, _ := attribute(t, "href")
	u, err := at.Parse(strings.TrimSpace(href))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return link{}, false
	}
	l := link{name: path.Base(u.Path)}
	if !fileName.MatchString(l.name) || !isWheel(l.name) && !isSource(l.name) {
		return link{}, false
	}
	if linkHash.MatchString(u.Fragment) {
		l.hash = u.Fragment
	}
	u.Fragment, u.RawFragment, u.User = "", "", nil
	l.url = u
	l.python, _ = attribute(t, "data-requires-python")
	if why, ok := attribute(t, "data-yanked"); ok {
		l.yanked = &why
	}
	for _, name := range []string{"data-core-metadata", "data-dist-info-metadata"} {
		if v, ok := attribute(t, name); ok && metaHash.MatchString(v) {
			l.metadata = v
			break
		}
	}
	return l, true
}

// writePage makes the page that the sandbox sees: the same links, each to the
// relay. Nothing of the index's own text is in it.
func writePage(links []link, first int) []byte {
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html><body>\n")
	for i, l := range links {
		href := fmt.Sprintf("/file/%d/%s", first+i, url.PathEscape(l.name))
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
	}
	b.WriteString("</body></html>\n")
	return []byte(b.String())
}
