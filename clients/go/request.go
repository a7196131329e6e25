package skillrun

import (
	"bytes"
	"errors"
	"io"
	"strings"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// inlineBytes is how much standard input and file content together goes into
// the request itself; the rest is streamed. The daemon takes messages of up to
// 16 MiB, but may be configured for less.
const inlineBytes = 1 << 20

// A call is a request with what has to be streamed behind it.
type call struct {
	request *pb.ExecuteRequest
	uploads []*upload // files that go in chunks
	stdin   io.Reader // nil: nothing is streamed
}

// interactive reports whether the call needs ExecuteInteractive.
func (c *call) interactive() bool { return len(c.uploads) > 0 || c.stdin != nil }

func (c *call) close() {
	for _, u := range c.uploads {
		u.close()
	}
}

// call turns the command into messages. Local files are opened and hashed here.
func (c *Cmd) call() (*call, error) {
	if c.client == nil || c.source == nil {
		return nil, errors.New("command: made without Client.Script, Code or Command")
	}
	r := &pb.ExecuteRequest{
		Skill:            c.Skill,
		WorkingDirectory: c.Dir,
		Env:              c.Env,
		SecretEnv:        c.SecretEnv,
		Labels:           c.Labels,
		Limits:           c.Limits.message(),
		Network:          c.Network,
		OnDisconnect:     c.OnDisconnect,
		IdempotencyKey:   c.IdempotencyKey,
		QueueTimeout:     duration(c.QueueTimeout),
	}
	c.source(r)
	out := &call{request: r}
	room := int64(inlineBytes)
	if c.JSONArguments != "" {
		r.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: c.JSONArguments}
		out.stdin = c.Stdin
	} else if data, ok := smallStdin(c.Stdin, room); ok {
		room -= int64(len(data))
		if len(data) > 0 {
			r.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: data}
		}
	} else {
		out.stdin = c.Stdin
	}
	for _, f := range c.Files {
		if err := out.add(f, &room); err != nil {
			out.close()
			return nil, err
		}
	}
	return out, nil
}

// add puts one file into the request, or announces it there.
func (c *call) add(f File, room *int64) error {
	u, err := f.open()
	if err != nil {
		return err
	}
	in := &pb.InputFile{Path: f.Path, Executable: f.Executable}
	c.request.Files = append(c.request.Files, in)
	if u.size <= *room {
		defer u.close()
		data, err := u.bytes()
		if err != nil {
			return err
		}
		in.Source = &pb.InputFile_Content{Content: data}
		*room -= u.size
		return nil
	}
	c.uploads = append(c.uploads, u)
	if err := u.hash(); err != nil {
		return err
	}
	in.Source = &pb.InputFile_Streamed{Streamed: &pb.StreamedFile{SizeBytes: uint64(u.size), Sha256: u.sha256}}
	return nil
}

// smallStdin takes the content of a reader whose length is known and fits.
func smallStdin(r io.Reader, room int64) ([]byte, bool) {
	if r == nil {
		return nil, true
	}
	var n int
	switch r := r.(type) {
	case *bytes.Buffer:
		n = r.Len()
	case *bytes.Reader:
		n = r.Len()
	case *strings.Reader:
		n = r.Len()
	default:
		return nil, false
	}
	if int64(n) > room {
		return nil, false
	}
	data := make([]byte, n)
	n, _ = io.ReadFull(r, data) // none of the three can fail
	return data[:n], true
}
