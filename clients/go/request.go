package skillrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// inlineBytes is how many bytes of standard input and files together are part of the
// request. The rest is streamed. The daemon accepts messages of up to 16 MiB by default,
// but may be configured for less.
const inlineBytes = 1 << 20

// keyedBytes is the maximum standard input of a call with an idempotency key. All of it is
// part of the request, which may have up to 16 MiB.
const keyedBytes = 15 << 20

// A call is a request with the data to stream after it.
type call struct {
	request *pb.ExecuteRequest
	uploads []*upload // files to send in chunks
	stdin   io.Reader // nil: nothing is streamed
	on      func(sent, total int64)
}

// interactive reports whether the call needs ExecuteInteractive.
func (c *call) interactive() bool { return len(c.uploads) > 0 || c.stdin != nil }

// close closes the files of the call. Nothing may send them after that.
func (c *call) close() {
	for _, u := range c.uploads {
		u.close()
	}
}

// call converts the command into a request. It opens and hashes local files. If there is a
// key, it reads standard input to its end, or until ctx ends.
func (c *Cmd) call(ctx context.Context) (*call, error) {
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
		NetworkRules:     c.Network.message(),
		Session:          c.Session.message(),
		OnDisconnect:     c.OnDisconnect,
		IdempotencyKey:   c.IdempotencyKey,
		QueueTimeout:     duration(c.QueueTimeout),
	}
	c.source(r)
	out := &call{request: r, on: c.OnUpload}
	room := int64(inlineBytes)
	if err := out.addStdin(ctx, c, &room); err != nil {
		return nil, err
	}
	for _, f := range c.Files {
		if err := out.add(f, &room); err != nil {
			out.close()
			return nil, err
		}
	}
	return out, nil
}

// addStdin puts standard input into the request or marks it for streaming. room is how many bytes
// may still go into the request; it shrinks by what addStdin puts there.
func (c *call) addStdin(ctx context.Context, cmd *Cmd, room *int64) error {
	var data []byte
	fits := false
	switch {
	case cmd.IdempotencyKey != "":
		var err error
		if data, err = keyedStdin(ctx, cmd.Stdin); err != nil {
			return err
		}
		if len(data) > 0 && cmd.JSONArguments != "" {
			return errors.New("stdin: not allowed after JSON arguments if there is an idempotency key")
		}
		fits = true
	case cmd.JSONArguments == "":
		data, fits = smallStdin(cmd.Stdin, *room)
	}
	if cmd.JSONArguments != "" {
		c.request.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: cmd.JSONArguments}
	} else if len(data) > 0 {
		c.request.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: data}
	}
	if !fits {
		c.stdin = cmd.Stdin
	}
	*room = max(*room-int64(len(data)), 0)
	return nil
}

// add puts a file into the request, or announces it for sending in chunks. The file stays open
// until close if it is sent in chunks.
func (c *call) add(f File, room *int64) error {
	if f.URI != "" {
		c.request.Files = append(c.request.Files, &pb.InputFile{Path: f.Path, Executable: f.Executable, Source: &pb.InputFile_Uri{Uri: f.URI}})
		return nil
	}
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

// keyedStdin reads all of r, which may be nil. A request with a key must be complete,
// because the daemon cannot compare streams. If ctx ends first, its goroutine goes on until r's
// Read returns.
func keyedStdin(ctx context.Context, r io.Reader) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(r, keyedBytes+1))
		read <- result{data, err}
	}()
	select {
	case got := <-read:
		if got.err != nil {
			return nil, fmt.Errorf("stdin: %w", got.err)
		}
		if len(got.data) > keyedBytes {
			return nil, fmt.Errorf("stdin: an idempotency key needs an input of at most %d MiB", keyedBytes>>20)
		}
		return got.data, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// smallStdin returns the content of a reader with a known length of at most room bytes.
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
	n, _ = io.ReadFull(r, data) // these readers cannot fail
	return data[:n], true
}
