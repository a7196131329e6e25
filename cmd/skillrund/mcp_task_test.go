package main

import (
	"bytes"
	"encoding/json"
	"image/png"
	"slices"
	"testing"
)

// plotScript draws the last column of a CSV as bars, without any package.
const plotScript = `import csv, struct, sys, zlib

rows = list(csv.reader(open(sys.argv[1])))[1:]
sums = [int(r[-1]) for r in rows]
high = max(sums)
lines = [b"\0" + b"".join(b"\x00" if y < s else b"\xff" for s in sums) for y in reversed(range(high))]
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
with open(sys.argv[2], "wb") as out:
    out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(sums), high, 8, 0, 0, 0, 0)))
    out.write(chunk(b"IDAT", zlib.compress(b"".join(lines))) + chunk(b"IEND", b""))
`

// An agent with the official client loads a table, works on it with two skills, and fetches the picture
// that they have made, over every transport and kind of protocol version.
func TestMCPTaskOfficialClient(t *testing.T) {
	t.Parallel()
	nodeProgram(t)
	dir := newDir(t)
	writeSkill(t, dir, "plotter", "", map[string]string{"scripts/plot.py": plotScript})
	d := startDaemonIn(t, dir, "listen: {unix: s.sock, mcp_tcp: '127.0.0.1:0'}\n")
	endpoint := "http://" + tcpAddress(t, d) + "/mcp"
	for _, tt := range []struct {
		name, era string
		server    []string
	}{
		{"stdio, with sessions", "legacy", d.mcpCommand().Args}, {"stdio", "2026-07-28", d.mcpCommand().Args},
		{"HTTP, with sessions", "legacy", []string{endpoint}}, {"HTTP", "2026-07-28", []string{endpoint}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := runClient(t, "task.mjs", append([]string{tt.era}, tt.server...), "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock")
			type changes struct {
				ID      string
				Version int
				Changes []struct{ Path, Change, URI string }
			}
			var got struct {
				ID              string
				Table           map[string]struct{ URI string }
				Filtered, Drawn changes
				Picture         struct {
					URI, MimeType string
					Blob          []byte
				}
				Read    struct{ Base64 []byte }
				Removed []string
				Again   struct {
					Session string
					Version int
					Files   []struct{ Path string }
				}
			}
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			if got.ID == "" || got.Table["data/sales.csv"].URI != "session://"+got.ID+"/data/sales.csv" {
				t.Errorf("the table: %s", data)
			}
			for path, c := range map[string]changes{"rome.csv": got.Filtered, "chart.png": got.Drawn} {
				if c.ID != got.ID || len(c.Changes) != 1 || c.Changes[0].Path != path || c.Changes[0].Change != "added" {
					t.Errorf("%s: %+v", path, c)
				}
			}
			picture, err := png.Decode(bytes.NewReader(got.Picture.Blob))
			if err != nil || picture.Bounds().Dx() != 3 || picture.Bounds().Dy() != 7 || got.Picture.MimeType != "image/png" || !bytes.Equal(got.Picture.Blob, got.Read.Base64) {
				t.Errorf("the picture: %v, %s", err, data)
			}
			var files []string
			for _, f := range got.Again.Files {
				files = append(files, f.Path)
			}
			if got.Again.Session != got.ID || got.Again.Version != 4 || !slices.Equal(files, []string{"chart.png", "data/sales.csv"}) || len(got.Removed) != 0 {
				t.Errorf("in a new connection: %s", data)
			}
		})
	}
	d.wantNothingLeft()
}
