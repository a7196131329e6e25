package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skillrund.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The file that ships documents every default, so it must say what they are.
func TestShippedConfigIsTheDefaults(t *testing.T) {
	got, err := loadConfig("../../deploy/skillrund.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := defaultConfig(); !reflect.DeepEqual(got, want) {
		t.Errorf("deploy/skillrund.yaml says\n%+v\nthe defaults are\n%+v", got, want)
	}
}

func TestShippedConfigNamesEveryKey(t *testing.T) {
	data, err := os.ReadFile("../../deploy/skillrund.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keysOf(reflect.TypeFor[config]()) {
		if !strings.Contains(string(data), key+":") {
			t.Errorf("deploy/skillrund.yaml does not name %s", key)
		}
	}
}

// keysOf returns the YAML keys of a struct and of the structs in it.
func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		keys = append(keys, f.Tag.Get("yaml"))
		if f.Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(f.Type)...)
		}
	}
	return keys
}

func TestConfigReadsUnitsAndPaths(t *testing.T) {
	path := writeConfig(t, `
state_dir: state
skills: [a, /b]
listen: {unix: run/s.sock, unix_mode: 0600, tcp: "127.0.0.1:0"}
limits: {default: {memory: 64MiB, wall_time: 1m30s, output: 1000}, max: {memory: 2GiB}}
`)
	c, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if c.StateDir != dir+"/state" || c.Skills[0] != dir+"/a" || c.Skills[1] != "/b" || c.Listen.Unix != dir+"/run/s.sock" {
		t.Errorf("paths are not relative to the file: %+v", c)
	}
	if c.Listen.UnixMode != 0o600 || c.Limits.Default.Memory != 64<<20 || c.Limits.Max.Memory != 2<<30 ||
		c.Limits.Default.Output != 1000 || c.Limits.Default.WallTime != duration(90*time.Second) {
		t.Errorf("units: %+v", c)
	}
	if c.Limits.Default.Processes != 64 {
		t.Errorf("a key that is not set lost its default: %d processes", c.Limits.Default.Processes)
	}
}

func TestConfigErrorsSayWhereAndWhat(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "state_dir: x\nnetwrok: none\n", "line 2: unknown key netwrok"},
		{"unknown nested key", "limits:\n  max:\n    memroy: 1GiB\n", "line 3: unknown key memroy"},
		{"two unknown keys", "a: 1\nb: 2\n", "line 1: unknown key a; line 2: unknown key b"},
		{"not YAML", "a: [\n", "line 1"},
		{"two documents", "network: none\n---\nnetwork: none\n", "more than one document"},
		{"duration", "grace: 5 minutes\n", `line 1: "5 minutes" is not a duration`},
		{"size", "message_bytes: 16XB\n", `line 1: "16XB" is not a size`},
		{"negative size", "message_bytes: -1\n", `"-1" is not a size`},
		{"size overflow", "message_bytes: 99999999999GiB\n", "is not a size"},
		{"file mode", "listen: {unix_mode: 999}\n", "is not a file mode"},
		{"wrong type", "concurrency: {queued: many}\n", "line 1"},
		{"network", "network: bridge\n", `network: "bridge"; must be none or host`},
		{"an image's name", "images: {A/b: {rootfs: /x}}\n", "images.A/b: an image's name has"},
		{"an image named host", "images: {host: {rootfs: /x}}\n", "images.host: an image's name has"},
		{"an image of nothing", "images: {a: {}}\n", "images.a: set one of rootfs"},
		{"an image of both", "images: {a: {rootfs: /x, image: b}}\n", "images.a: set one of rootfs"},
		{"an image's unknown key", "images:\n  a: {dir: /x}\n", "line 2: unknown key dir"},
		{"no reference", "images: {a: {image: 'http://x'}}\n", "images.a: image: \"http://x\" is not a valid reference"},
		{"credentials", "images: {a: {image: x, credentials: mine}}\n", `images.a: credentials: "mine"; must be none or docker`},
		{"credentials for a directory", "images: {a: {rootfs: /x, credentials: docker}}\n", "images.a.credentials: a directory needs none"},
		{"the machine's root", "images: {a: {rootfs: /}}\n", "which no sandbox may see"},
		{"a root with the state in it", "state_dir: /srv/x/state\nimages: {a: {rootfs: /srv/x}}\n", "/srv/x holds /srv/x/state, which no sandbox may see"},
		{"a root in the state", "state_dir: /srv/x\nimages: {a: {rootfs: /srv/x/record}}\n", "images.a.rootfs: /srv/x/record lies in /srv/x"},
		{"an unknown runtime", "runtimes: {lua: host}\n", "runtimes.lua: unknown; there are default, python, bash, sh, node, ruby, perl"},
		{"a runtime in no image", "runtimes: {bash: tools}\n", `runtimes.bash: "tools" is neither host nor a name of images`},
		{"nothing may be pulled", "pull: {files: 0}\n", "pull.files: must be more than 0"},
		{"python", "python: '3.14'\n", `python: "3.14"; must be auto, system or embedded`},
		{"host network with TCP", "network: host\nlisten: {tcp: 127.0.0.1:1}\n", "asks for no credentials"},
		{"host network with TCP for MCP", "network: host\nlisten: {mcp_tcp: 127.0.0.1:1}\n", "listen.mcp_tcp asks for no credentials"},
		{"TCP for all, MCP", "listen: {mcp_tcp: 0.0.0.0:1}\n", "listen.mcp_tcp: \"0.0.0.0\" is reachable from outside"},
		{"long socket, MCP", "listen: {mcp_unix: /" + strings.Repeat("x", 120) + "}\n", "listen.mcp_unix: 121 bytes"},
		{"one socket for two", "listen: {unix: s, mcp_unix: s}\n", "the same as listen.unix"},
		{"TCP for all", "listen: {tcp: 0.0.0.0:1}\n", "reachable from outside"},
		{"TCP for all by name", "listen: {tcp: ':1'}\n", "reachable from outside"},
		{"TCP without a port", "listen: {tcp: 127.0.0.1}\n", "missing port"},
		{"TCP port", "listen: {tcp: 127.0.0.1:http}\n", "is not a port"},
		{"no listener", "listen: {unix: ''}\n", "neither unix nor tcp"},
		{"long socket", "listen: {unix: /" + strings.Repeat("x", 120) + "}\n", "at most 107"},
		{"default above max", "limits: {max: {memory: 64MiB}}\n", "limits.default.memory: above limits.max.memory"},
		{"zero default", "limits: {default: {processes: 0}}\n", "limits.default.processes: must be more than 0"},
		{"too little memory", "limits: {default: {memory: 1MiB}}\n", "limits.default.memory: below the least"},
		{"too few open files", "limits: {default: {open_files: 16}}\n", "limits.default.open_files: below the least"},
		{"long wall time", "limits: {max: {wall_time: 601s}}\n", "at most 600s"},
		{"cgroup", "cgroup_parent: relative\n", "cgroup_parent"},
		{"ids of accounts", "ids: {first: 1000}\n", "accounts live below 65536"},
		{"few ids", "ids: {count: 40}\nconcurrency: {running: 4}\n", "ids.count: 40 are ids for 9 sandboxes; concurrency.running, concurrency.reserved, prepared.sandboxes and a build need 16"},
		{"hardly an id", "ids: {count: 2}\nprepared: {sandboxes: 0}\n", "ids.count: 2 are ids for 0 sandboxes"},
		{"more than a number holds", "concurrency: {running: 9223372036854775807}\n", "concurrency.running: all that a daemon takes are ids for 1023 sandboxes"},
		{"more than there are ids for", "concurrency: {running: 5000}\n", "concurrency.running: all that a daemon takes are ids for 1023 sandboxes; concurrency.running, concurrency.reserved, prepared.sandboxes and a build need 5012"},
		{"more reserved than a number holds", "concurrency: {running: 9223372036854775807, reserved: 9223372036854775807}\n", "all that a daemon takes are ids for 1023 sandboxes"},
		{"fewer than none reserved", "concurrency: {reserved: -1}\n", "concurrency.reserved, grace, cancel_grace: must not be negative"},
		{"ids past the end", "ids: {first: 4294967000, count: 1000}\n", "ids.count"},
		{"a boundary that is none", "boundaries: {allow_missing: [swap, sawp]}\n", `boundaries.allow_missing: "sawp" is none that can be missing`},
		{"a boundary that must be there", "boundaries: {allow_missing: [user namespace]}\n", `boundaries.allow_missing: "user namespace" is none that can be missing`},
		{"a report that must be there", "boundaries: {allow_missing: [complete report]}\n", `"complete report" is none`},
		{"a boundary twice", "boundaries: {allow_missing: [swap, swap]}\n", `"swap" is there twice`},
		{"nothing runs", "concurrency: {running: 0}\n", "concurrency.running: must be more than 0"},
		{"log", "log: {format: xml}\n", "text or json"},
		{"audit", "audit: {arguments: all}\n", `audit.arguments: "all"; must be off, hash or truncated`},
		{"log level", "log: {level: loud}\n", "level"},
		{"message size", "message_bytes: 1\n", "between 64KiB and 256MiB"},
		{"processors", "limits: {default: {cpus: two}}\n", `line 1: "two" is not a number of processors`},
		{"too few processors", "limits: {default: {cpus: 0.009}}\n", `"0.009" is not a number of processors`},
		{"no number of processors", "limits: {max: {cpus: .nan}}\n", `".nan" is not a number of processors`},
		{"more processors than the most", "limits: {default: {cpus: 2}, max: {cpus: 1.5}}\n", "limits.default.cpus: above limits.max.cpus"},
		{"mother", "prepared: {mother: false}\n", "prepared.mother: must be true, or prepared.sandboxes and prepared.interpreters 0"},
		{"request bytes", "request_bytes: 1MiB\n", "at least message_bytes, 16777216"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadConfig(writeConfig(t, tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestConfigOfMCP(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"beside the default", "listen: {tcp: '127.0.0.1:1'}", "/run/skillrun/mcp.sock"},
		{"beside another", "listen: {unix: run/s.sock}", "DIR/run/mcp.sock"},
		{"of its own", "listen: {unix: run/s.sock, mcp_unix: m}", "DIR/m"},
		{"none", "listen: {mcp_unix: ''}", ""},
		{"beside none", "listen: {unix: '', tcp: '127.0.0.1:1'}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeConfig(t, tt.text)
			c, err := loadConfig(path)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.Replace(tt.want, "DIR", filepath.Dir(path), 1); c.Listen.MCPUnix != want {
				t.Errorf("got %q, want %q", c.Listen.MCPUnix, want)
			}
		})
	}
}

func TestConfigWithoutFile(t *testing.T) {
	if _, err := loadConfig(""); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
	if _, err := loadConfig(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is missing is not an error")
	}
	if _, err := loadConfig(writeConfig(t, "")); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestConfigOfImages(t *testing.T) {
	path := writeConfig(t, "images:\n  tools: {rootfs: tree}\n  data: {image: registry.example.com/data@sha256:"+strings.Repeat("0", 64)+", credentials: docker}\n  other: {rootfs: /x}\n"+
		"runtimes: {python: data, bash: tools, sh: tools}\n")
	c, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Images["tools"].Rootfs, filepath.Join(filepath.Dir(path), "tree"); got != want {
		t.Errorf("a relative directory: got %s, want %s", got, want)
	}
	if got, want := strings.Join(c.usedImages(), " "), "data tools"; got != want {
		t.Errorf("used: got %s, want %s", got, want)
	}
	if c.Runtimes["default"] != "host" {
		t.Errorf("what is not named runs in %q, want host", c.Runtimes["default"])
	}
	if c, err = loadConfig(writeConfig(t, "runtimes:\nimages:\n")); err != nil || c.Runtimes["default"] != "host" {
		t.Errorf("empty keys: got %v, %v", c.Runtimes, err)
	}
	if err := c.pinned(t.Context()); err != nil {
		t.Errorf("without images: %v", err)
	}
}
