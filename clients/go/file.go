package skillrun

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// chunkBytes is the size of a piece of an input file. Its framing costs little, and it is
// small compared to the daemon's message limit.
const chunkBytes = 256 << 10

// A File is an input file, which is put into /workspace before the program starts.
type File struct {
	// Path is the file's path, relative to /workspace.
	Path string
	// Content is the file's content if Source is empty.
	Content []byte
	// Source is a regular file on this machine, read during Start.
	Source string
	// URI names a resource of the daemon that replaces Content and Source: a file of a skill
	// (skill://NAME/PATH), or an artifact of an execution (Artifact.Uri).
	URI string
	// Executable sets the execute permission.
	Executable bool
}

// An upload is a file that is sent in chunks. Its size is the one at the time of open. The daemon
// gets no other number of bytes.
type upload struct {
	path    string
	size    int64  // bytes
	sha256  string // in hexadecimal; set by hash
	content io.ReaderAt
	close   func() error // called once, when the execution has ended or could not start
}

// open returns f's content with random access, because the content is hashed, sent, and
// perhaps sent again.
func (f File) open() (*upload, error) {
	if f.Source == "" {
		return &upload{path: f.Path, size: int64(len(f.Content)), content: bytes.NewReader(f.Content), close: func() error { return nil }}, nil
	}
	info, err := os.Stat(f.Source) // first: to open a FIFO would wait for its writer
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", f.Source)
	}
	var file *os.File
	if err == nil {
		file, err = os.Open(f.Source)
	}
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", f.Path, err)
	}
	return &upload{path: f.Path, size: info.Size(), content: file, close: file.Close}, nil
}

// bytes returns the whole content.
func (u *upload) bytes() ([]byte, error) {
	data := make([]byte, u.size)
	if _, err := io.ReadFull(io.NewSectionReader(u.content, 0, u.size), data); err != nil {
		return nil, u.changed(err)
	}
	return data, nil
}

// hash computes the SHA-256 with which the request announces the file.
func (u *upload) hash() error {
	sum := sha256.New()
	n, err := io.Copy(sum, io.NewSectionReader(u.content, 0, u.size))
	if err == nil && n != u.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return u.changed(err)
	}
	u.sha256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// send sends the content in chunks. If the file has grown since it was announced, only the
// announced size is sent, and the daemon's checksum shows whether the content has changed.
func (u *upload) send(send func(*pb.FileChunk) error) error {
	return u.sendFrom(0, func(offset int64, data []byte) error {
		return send(&pb.FileChunk{Path: u.path, OffsetBytes: uint64(offset), Data: data})
	})
}

// sendFrom sends the content from an offset on.
func (u *upload) sendFrom(offset int64, send func(offset int64, data []byte) error) error {
	for offset < u.size {
		// Each chunk has a new slice, because gRPC may still use the last one.
		data := make([]byte, min(chunkBytes, u.size-offset))
		if n, err := u.content.ReadAt(data, offset); n < len(data) {
			return u.changed(err)
		}
		if err := send(offset, data); err != nil {
			return err
		}
		offset += int64(len(data))
	}
	return nil
}

// changed explains an error of a read. A file that ends early has changed since open.
func (u *upload) changed(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("file %s: it became shorter than %d bytes during the read", u.path, u.size)
	}
	return fmt.Errorf("file %s: %w", u.path, err)
}
