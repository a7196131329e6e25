package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A shippedCase is one case of testdata/shipped. README.md there describes the fields.
type shippedCase struct {
	Name    string
	Script  string
	Code    string
	Command string
	Args    []string
	Stdin   string
	JSON    json.RawMessage `json:"json_arguments"`
	Dir     string
	Files   map[string]struct {
		Content string
		Base64  []byte `json:"content_base64"`
	}
	Expect struct {
		Denied         bool
		Refused        string
		ExitCode       int32 `json:"exit_code"`
		Stdout, Stderr *string
		StdoutContains []string `json:"stdout_contains"`
		StderrContains []string `json:"stderr_contains"`
		Artifacts      *[]struct {
			Path    string
			Content *string
			MinSize int    `json:"min_size"`
			Magic   []byte `json:"magic_base64"`
		}
	}
}

func TestShippedSkills(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/shipped/*.json")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d case files, %v; want one for each of six skills", len(files), err)
	}
	d := startDaemon(t, "")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var suite struct {
			Skill string
			Cases []shippedCase
		}
		if err := json.Unmarshal(data, &suite); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Run(suite.Skill, func(t *testing.T) {
			for _, c := range suite.Cases {
				t.Run(c.Name, func(t *testing.T) {
					d.t = t
					d.runShipped(suite.Skill, c)
				})
			}
		})
	}
	d.t = t
	d.wantNothingLeft()
}

func (d *running) runShipped(skill string, c shippedCase) {
	t := d.t
	t.Helper()
	req := c.request(skill)
	r, err := d.try(req)
	if c.Expect.Denied {
		wantStatus(t, err, "PermissionDenied", "COMMAND_NOT_ALLOWED")
		return
	}
	if c.Expect.Refused != "" {
		wantStatus(t, err, "InvalidArgument", c.Expect.Refused)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, c.Expect.ExitCode)
	for name, stream := range map[string]struct {
		got   string
		whole *string
		parts []string
	}{
		"stdout": {r.stdout.String(), c.Expect.Stdout, c.Expect.StdoutContains},
		"stderr": {r.stderr.String(), c.Expect.Stderr, c.Expect.StderrContains},
	} {
		if stream.whole != nil && stream.got != *stream.whole {
			t.Errorf("%s %q, want %q", name, stream.got, *stream.whole)
		}
		for _, part := range stream.parts {
			if !strings.Contains(stream.got, part) {
				t.Errorf("%s %q, want %q in it", name, stream.got, part)
			}
		}
	}
	if c.Expect.Artifacts == nil {
		return
	}
	var got, want []string
	for _, a := range r.outcome.Artifacts {
		got = append(got, a.Path)
	}
	for _, a := range *c.Expect.Artifacts {
		want = append(want, a.Path)
		content := d.artifact(r.id, a.Path)
		if a.Content != nil && string(content) != *a.Content {
			t.Errorf("%s is %q, want %q", a.Path, content, *a.Content)
		}
		if len(content) < a.MinSize || !bytes.HasPrefix(content, a.Magic) {
			t.Errorf("%s has %d bytes and begins with %q; want at least %d, beginning with %q", a.Path, len(content), content[:min(len(content), 8)], a.MinSize, a.Magic)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("artifacts %v, want %v", got, want)
	}
}

func (c shippedCase) request(skill string) *pb.ExecuteRequest {
	req := &pb.ExecuteRequest{Skill: skill, Args: c.Args, WorkingDirectory: c.Dir}
	switch {
	case c.Script != "":
		req.Source = &pb.ExecuteRequest_Script{Script: c.Script}
	case c.Code != "":
		req.Source = &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: c.Code}}
	default:
		req.Source = &pb.ExecuteRequest_Command{Command: c.Command}
	}
	if len(c.JSON) > 0 {
		req.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: string(c.JSON)}
	} else if c.Stdin != "" {
		req.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: []byte(c.Stdin)}
	}
	for path, f := range c.Files {
		content := f.Base64
		if content == nil {
			content = []byte(f.Content)
		}
		req.Files = append(req.Files, &pb.InputFile{Path: path, Source: &pb.InputFile_Content{Content: content}})
	}
	return req
}

// artifact downloads one artifact and checks its size and digest.
func (d *running) artifact(id, path string) []byte {
	d.t.Helper()
	s, err := d.runs.GetArtifact(d.t.Context(), &pb.GetArtifactRequest{ExecutionId: id, Path: path})
	if err != nil {
		d.t.Fatal(err)
	}
	var content []byte
	var a *pb.Artifact
	for {
		m, err := s.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			d.t.Fatalf("artifact %s: %v", path, err)
		}
		if m.Artifact != nil {
			a = m.Artifact
		}
		content = append(content, m.Data...)
	}
	if a.GetSizeBytes() != uint64(len(content)) || a.GetSha256() != sum(content) {
		d.t.Errorf("artifact %s: got %d bytes, said to be %v", path, len(content), a)
	}
	return content
}
