package download

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path"
	"reflect"
	"slices"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Bounds of a registry's document, besides maxPageBytes. A document has at most maxLinks versions and tags together.
const (
	maxDocumentValue = 1 << 20 // bytes of one version; a package.json has the same bound
	maxDocumentExtra = 8 << 20 // bytes of one field that is left out, such as the times of all versions
	maxTagName       = 256     // bytes of a tag or its version; a longer one is left out
)

// A documentReader reads the document of a package piece by piece, and writes the one that npm gets. So
// the daemon holds little more than the new text: as values of Go, a document of many small fields would take
// 40 times its length.
type documentReader struct {
	registry
	name     string
	at       *url.URL // of the document
	from     *valueReader
	decoder  *json.Decoder
	count    int // of versions and tags
	tags     map[string]string
	versions map[string]bool
	out      *answer
}

// documentFields are the fields of a version that npm gets. A registry without the short form has scripts in place of
// hasInstallScript.
var documentFields = append([]string{
	"dist", "directories", "acceptDependencies", "hasInstallScript", "scripts", "_hasShrinkwrap",
}, tarballFields...)

// versionFields are the documentFields of a version.
type versionFields map[string]json.RawMessage

// UnmarshalJSON leaves out the other fields before they become values of Go.
func (f *versionFields) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	switch begin, err := d.Token(); {
	case err != nil || begin == nil: // null is a version without fields
		return err
	case begin != json.Delim('{'):
		return &json.UnmarshalTypeError{Value: fmt.Sprintf("%T", begin), Type: reflect.TypeFor[versionFields]()}
	}
	*f = versionFields{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if slices.Contains(documentFields, name.(string)) { // the decoder allows no other name
			err = d.Decode(&value)
			(*f)[name.(string)] = value
		} else {
			err = d.Decode(new(extra))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readDocument reads the document of a package, from the URL at. It returns a document in which each file is
// one of the build's server, by its number. A version without a usable file is left out, and so is each field
// that npm does not need. The caller closes the answer.
// The sandbox learns numbers, not URLs: whatever npm asks for, the daemon fetches only files that a
// document of the configured registry has named.
func (r registry) readDocument(name string, text io.Reader, at *url.URL, out *answer) error {
	from := &valueReader{from: &io.LimitedReader{R: text, N: maxPageBytes + 1}}
	d := &documentReader{
		registry: r, name: name, at: at, from: from, decoder: json.NewDecoder(from),
		tags: map[string]string{}, versions: map[string]bool{}, out: out,
	}
	if err := d.write(`{"versions":{`); err != nil {
		return err
	}
	err := d.object(func(field string) error {
		switch field {
		case "dist-tags":
			return d.object(d.tag)
		case "versions":
			return d.object(d.version)
		}
		return d.value(new(extra), maxDocumentExtra)
	})
	if err != nil {
		return err
	}
	return d.end()
}

// end writes the tags and the name. npm needs "latest", and a tag must lead to a version.
func (d *documentReader) end() error {
	if err := d.write(`},"dist-tags":{`); err != nil {
		return err
	}
	comma := ""
	for _, tag := range slices.Sorted(maps.Keys(d.tags)) {
		if !d.versions[d.tags[tag]] {
			continue
		}
		text, err := encode(tag)
		if err != nil {
			return err
		}
		if err := d.write("%s%s:%q", comma, text, d.tags[tag]); err != nil {
			return err
		}
		comma = ","
	}
	return d.write(`},"name":%q}`, d.name)
}

// write appends to the document for npm.
func (d *documentReader) write(format string, args ...any) error {
	if _, err := fmt.Fprintf(d.out, format, args...); err != nil {
		return d.fail("has %w", err)
	}
	return nil
}

// object calls member with the name of each member of an object. It has to read the member's value. null is an
// empty object.
func (d *documentReader) object(member func(name string) error) error {
	begin, err := d.token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('{') {
		return d.fail("is not that of a package")
	}
	for d.decoder.More() {
		name, err := d.token()
		if err != nil {
			return err
		}
		if err := member(name.(string)); err != nil { // the decoder allows no other name
			return err
		}
	}
	_, err = d.token()
	return err
}

// token reads the next token.
func (d *documentReader) token() (json.Token, error) {
	d.from.left = maxDocumentValue
	t, err := d.decoder.Token()
	return t, d.explain(err)
}

// value reads a whole value of at most most bytes.
func (d *documentReader) value(v any, most int) error {
	d.from.left = most
	return d.explain(d.decoder.Decode(v))
}

// explain puts an error of the decoder into words. Errors of the download stay.
func (d *documentReader) explain(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case d.from.from.N == 0:
		return d.fail("is longer than %d bytes", int64(maxPageBytes))
	case errors.As(err, &syntax), errors.As(err, &kind), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return d.fail("is not that of a package: %w", err)
	case errors.Is(err, errLongValue):
		return d.fail("has %w", err)
	}
	return err
}

func (d *documentReader) fail(format string, args ...any) error {
	return fmt.Errorf("the document of %s "+format, append([]any{d.name}, args...)...)
}

// take counts a version or a tag.
func (d *documentReader) take() error {
	if d.count++; d.count > maxLinks {
		return d.fail("has more than %d versions and tags", maxLinks)
	}
	return nil
}

func (d *documentReader) tag(name string) error {
	if err := d.take(); err != nil {
		return err
	}
	var version string
	if err := d.value(&version, maxDocumentValue); err != nil {
		return err
	}
	if len(name) > maxTagName || len(version) > maxTagName {
		return nil
	}
	// Counts here, because the tags are held until the end, and there again.
	if err := d.out.take(len(name) + len(version)); err != nil {
		return d.fail("has %w", err)
	}
	d.tags[name] = version
	return nil
}

// version reads a version and writes it with a new place of its file. It leaves out a version without a
// usable file.
func (d *documentReader) version(version string) error {
	if err := d.take(); err != nil {
		return err
	}
	var fields versionFields
	if err := d.value(&fields, maxDocumentValue); err != nil {
		return err
	}
	var f dist
	if json.Unmarshal(fields["dist"], &f) != nil || f.Integrity == "" && f.Shasum == "" || manifest.CheckNodePackage(d.name, version) != nil {
		return nil
	}
	u, err := d.at.Parse(f.Tarball)
	if err != nil || f.Tarball == "" || u.Scheme != "https" && u.Scheme != "http" || len(f.Tarball) > maxLinkText {
		return nil
	}
	u.User, u.Fragment = nil, ""
	file := path.Base(d.name) + "-" + version + ".tgz"
	n, err := d.keep(link{url: u.String(), name: file})
	if err != nil {
		return err
	}
	f.Tarball = fmt.Sprintf("http://127.0.0.1:%d/file/%d/%s", RegistryPort, n, file)
	if fields["dist"], err = json.Marshal(f); err != nil {
		return err
	}
	text, err := encode(fields)
	if err != nil {
		return err
	}
	comma := ""
	if len(d.versions) > 0 {
		comma = ","
	}
	d.versions[version] = true
	// %q, as for the name: CheckNodePackage allows no character that JSON escapes.
	return d.write("%s%q:%s", comma, version, text)
}

// encode is json.Marshal without the escapes for HTML, which would make a text of "<" six times as long.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// An extra is a value that is left out.
type extra struct{}

func (*extra) UnmarshalJSON([]byte) error { return nil }

// A valueReader ends with an error after left bytes. The decoder holds a value in memory while it reads it, so left is set
// for each value.
type valueReader struct {
	from *io.LimitedReader
	left int
}

var errLongValue = errors.New("a version or a field that is too long")

func (r *valueReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errLongValue
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
