package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/network/policy"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skillrund.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The shipped file documents every default, so its values must be the defaults.
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

// keysOf returns the YAML keys of a struct and of the structs in it, also in its lists and maps.
func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue // not a key
		}
		keys = append(keys, f.Tag.Get("yaml"))
		in := f.Type
		if kind := in.Kind(); kind == reflect.Slice || kind == reflect.Map {
			in = in.Elem()
		}
		if in.Kind() == reflect.Struct {
			keys = append(keys, keysOf(in)...)
		}
	}
	return keys
}

func TestConfigReadsUnitsAndPaths(t *testing.T) {
	path := writeConfig(t, `
state_dir: state
skills: [a, /b, {path: c, namespace: team-1, recursive: true}]
listen: {unix: run/s.sock, unix_mode: 0600, tcp: "127.0.0.1:0"}
limits: {default: {memory: 64MiB, wall_time: 1m30s, output: 1000}, max: {memory: 2GiB}}
`)
	c, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if c.StateDir != dir+"/state" || c.Skills[0].Path != dir+"/a" || c.Skills[1].Path != "/b" || c.Skills[2] != (skillRoot{dir + "/c", "team-1", true}) || c.Listen.Unix != dir+"/run/s.sock" {
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
		{"unknown key", "state_dir: x\nnetwrok: none\n", "line 2: netwrok: unknown key; did you mean network?"},
		{"unknown nested key", "limits:\n  max:\n    memroy: 1GiB\n", "line 3: limits.max.memroy: unknown key; did you mean memory?"},
		{"a path as a key", "grace: 1s\nlimits.default.memory: 1g\n", "line 2: limits.default.memory: unknown key; write limits: {default: {memory: ...}}"},
		{"a path in a mapping", "limits: {max.memory: 1g}\n", "line 1: limits.max.memory: unknown key; write max: {memory: ...}"},
		{"a path through a name", "tenants.acme.limits.max.memory: 1g\n", "line 1: tenants.acme.limits.max.memory: unknown key; write tenants: {acme: {limits: {max: {memory: ...}}}}"},
		{"a path of no key", "limits.default.foo: 1g\n", "line 1: limits.default.foo: unknown key; the keys here are listen, "},
		{"an alias without an anchor", "shell: true\n# *foo1\ngrace: *foo\n", "line 3: unknown anchor 'foo' referenced; write a text that begins with * or & in quotes"},
		{"not UTF-8", "shell: true\nskills: [/caf\xe9]\n", "line 2: invalid trailing UTF-8 octet; save the file in UTF-8"},
		{"a control character", "shell: true\nskills: [/a\x01]\n", `line 2: control characters are not allowed; remove the character, or write it as "\x01" in quotes`},
		{"two unknown keys", "a: 1\nb: 2\n", "2 errors\n  line 1: a: unknown key; the keys here are listen, "},
		{"not YAML", "a: [\n", "line 1"},
		{"two documents", "network: none\n---\nnetwork: none\n", "more than one document"},
		{"duration", "grace: 5 minutes\n", `line 1: grace: "5 minutes" is not a duration; write 30s, 1m30s or 250ms`},
		{"short keepalive", "keepalive: 1ns\n", "line 1: keepalive: 1ns is too short; write at least 1s"},
		{"size", "message_bytes: 16XB\n", `line 1: message_bytes: "16XB" is not a size; write a number of bytes, or a number with a unit such as 512MiB or 2GiB`},
		{"negative size", "message_bytes: -1\n", `"-1" is not a size`},
		{"size overflow", "message_bytes: 99999999999GiB\n", "is not a size"},
		{"file mode", "listen: {unix_mode: 999}\n", "is not a file mode"},
		{"a fraction of an execution", "concurrency: {queued: 1.5}\n", `line 1: concurrency.queued: "1.5" is not a whole number`},
		{"a rule without its list", "network: {allow: public}\n", `line 1: network.allow: "public" is not a list of rules; write [public]`},
		{"wrong type", "concurrency: {queued: many}\n", `line 1: concurrency.queued: "many" is not a whole number`},
		{"network", "network: bridge\n", `line 1: network: "bridge" is not a mapping; write none, or {allow: [public]}`},
		{"an image's name", "images: {A/b: {rootfs: /x}}\n", `line 1: images.A/b: "A/b" cannot be a name; write up to 64 of a-z, 0-9, '.', '_' and '-', and not host`},
		{"an image named host", "images: {host: {rootfs: /x}}\n", `line 1: images.host: "host" cannot be a name; write up to 64 of a-z, 0-9, '.', '_' and '-', and not host`},
		{"an image of nothing", "images: {a: {}}\n", "images.a: set one of rootfs"},
		{"an image of both", "images: {a: {rootfs: /x, image: b}}\n", "images.a: set one of rootfs"},
		{"an image's unknown key", "images:\n  a: {dir: /x}\n", "line 2: images.a.dir: unknown key; the keys here are rootfs, image, credentials"},
		{"no reference", "images: {a: {image: 'http://x'}}\n", "images.a.image: \"http://x\" is not a valid reference; write registry/repository@sha256:<digest>"},
		{"credentials", "images: {a: {image: x, credentials: mine}}\n", `images.a.credentials: "mine" is unknown; write none or docker`},
		{"credentials for a directory", "images: {a: {rootfs: /x, credentials: docker}}\n", "line 1: images.a.credentials: a directory needs no credentials; remove this key"},
		{"the machine's root", "images: {a: {rootfs: /}}\n", "which no sandbox may see"},
		{"a root with the state in it", "state_dir: /srv/x/state\nimages: {a: {rootfs: /srv/x}}\n", "line 2: images.a.rootfs: /srv/x contains /srv/x/state, which no sandbox may see; write a directory with the root file system alone"},
		{"a root in the state", "state_dir: /srv/x\nimages: {a: {rootfs: /srv/x/record}}\n", "images.a.rootfs: /srv/x/record lies in /srv/x"},
		{"an unknown runtime", "runtimes: {lua: host}\n", "line 1: runtimes.lua: unknown; write one of default, python, bash, sh, node, ruby or perl"},
		{"a runtime in no image", "runtimes: {bash: tools}\n", `runtimes.bash: "tools" is neither host nor a name of images; write host`},
		{"nothing may be pulled", "pull: {files: 0}\n", "line 1: pull.files: 0; must be more than 0"},
		{"python", "python: '3.14'\n", `line 1: python: "3.14" is unknown; write auto, system or embedded`},
		{"packages", "packages: refuse\n", `line 1: packages: "refuse" is unknown; write warn or strict`},
		{"the host's network", "network: host\n", `line 1: network: "host" is not a mapping`},
		{"a network's rule", "network:\n  allow:\n    - public\n    - https://example.com\n", `line 4: network.allow[1]: "https://example.com": a rule has no scheme and no path; write the domain alone`},
		{"a network's deny rule", "network: {deny: ['*']}\n", `line 1: network.deny[0]: "*": write public`},
		{"none and more", "network: {allow: [none, public]}\n", "line 1: network.allow[0]: none is in a list with other rules"},
		{"a rule with a comma", "network: {allow: [example.com:80,443]}\n", `line 1: network.allow[1]: "443": ports without a target; quote a rule with a comma`},
		{"a skill's rule", "network: {skills: {pdf: {allow: [x y]}}}\n", `line 1: network.skills.pdf.allow[0]: "x y": a rule has no blanks`},
		{"no connection", "network_limits: {connections: 0}\n", "line 1: network_limits.connections: 0; must be 1 to 4096, the value of network_limits.tenant_connections"},
		{"more than the tenant's", "network_limits: {tenant_connections: 10}\n", "network_limits.connections: 256; must be 1 to 10, the value of network_limits.tenant_connections"},
		{"more than a helper's", "network_limits:\n  tenant_connections: 9000\n", "line 2: network_limits.tenant_connections: 9000; must be 1 to 8000"},
		{"no new connection of a tenant", "network_limits: {tenant_new_connections: 0}\n", "network_limits.tenant_new_connections: 0; must be 1 to 100000"},
		{"a slow tenant", "network_limits: {tenant_bytes_per_second: 1KiB}\n", "line 1: network_limits.tenant_bytes_per_second: 1KiB; must be at least 64KiB, or 0 for no limit"},
		{"no name", "network_limits: {names: 0}\n", "network_limits.names: 0; must be 1 to 100000"},
		{"an endless idle time", "network_limits: {idle: 2h}\n", "line 1: network_limits.idle: 2h0m0s; must be more than 0s and at most 1h0m0s"},
		{"a resolver's name", "network_resolvers: [192.0.2.53, dns.example]\n", `line 1: network_resolvers[1]: "dns.example" is not an address; write 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53`},
		{"an own prefix", "network_own_addresses: [192.0.2.7, 192.0.2.0/24]\n", `line 1: network_own_addresses[1]: "192.0.2.0/24" is not an address; write 192.0.2.7 or 2001:db8::7`},
		{"a resolver's port", "network_resolvers: ['192.0.2.53:0']\n", `network_resolvers[0]: "192.0.2.53:0" is not an address`},
		{"a skill's word", "network: {skills: {pdf: all}}\n", `line 1: network.skills.pdf: "all" is not a mapping`},
		{"a skill's digest", "network: {skills: {pdf@sha256:12: none}}\n", `network.skills.pdf@sha256:12: "pdf@sha256:12" names no skill; write its full name, or name@sha256: and 64 hex digits`},
		{"TCP for all, MCP", "listen: {mcp_tcp: 0.0.0.0:1}\n", `line 1: listen.mcp_tcp: "0.0.0.0" is reachable from other machines, and listen.tls is not set; write a loopback address such as 127.0.0.1:7878, or set listen.tls`},
		{"long socket, MCP", "listen: {mcp_unix: /" + strings.Repeat("x", 120) + "}\n", "line 1: listen.mcp_unix: the path has 121 bytes; a socket's path has at most 107"},
		{"one socket for two", "listen: {unix: s, mcp_unix: s}\n", "/s is also listen.unix; give each socket its own path"},
		{"no receiver", "tracing: {endpoint: 'localhost:4317'}\n", `line 1: tracing.endpoint: "localhost:4317" is not the address of a receiver; write http://host:port, or https://host:port for TLS`},
		{"a receiver elsewhere", "tracing: {endpoint: 'http://collector:4317'}\n", "line 1: tracing.endpoint: http://collector:4317 is not on this machine, and http is not encrypted; write https, or set tracing.insecure: true"},
		{"a receiver with TLS that is insecure", "tracing: {endpoint: 'https://collector:4317', insecure: true}\n", "line 1: tracing.insecure: true, but tracing.endpoint is https; remove one of the two"},
		{"authorities without TLS", "tracing: {endpoint: 'http://127.0.0.1:4317', ca: x.pem}\n", "line 1: tracing.ca: is for https, and tracing.endpoint is http; write https, or remove this key"},
		{"headers for no receiver", "tracing: {headers_file: x}\n", "line 1: tracing.headers_file: is set, but tracing.endpoint is empty; set it, or remove this key"},
		{"too many traces", "tracing: {sample_ratio: 1.5}\n", "line 1: tracing.sample_ratio: 1.5; must be 0 to 1"},
		{"a part of NaN", "tracing: {sample_ratio: .nan}\n", "line 1: tracing.sample_ratio: NaN; must be 0 to 1"},
		{"one port for two", "listen: {tcp: 127.0.0.1:1, mcp_tcp: 127.0.0.1:1}\n", "line 1: listen.mcp_tcp: 127.0.0.1:1 is also listen.tcp; give each its own port"},
		{"metrics for all", "listen: {metrics_tcp: 0.0.0.0:1}\n", `line 1: listen.metrics_tcp: "0.0.0.0" is reachable from other machines, and listen.tls is not set; write a loopback address such as 127.0.0.1:7878, or set listen.tls`},
		{"metrics on the port of MCP", "listen: {mcp_tcp: 127.0.0.1:1, metrics_tcp: 127.0.0.1:1}\n", "line 1: listen.metrics_tcp: 127.0.0.1:1 is also listen.mcp_tcp; give each its own port"},
		{"TCP for all", "listen: {tcp: 0.0.0.0:1}\n", `line 1: listen.tcp: "0.0.0.0" is reachable from other machines, and listen.tls is not set; write a loopback address such as 127.0.0.1:7878, or set listen.tls`},
		{"TCP for all by name", "listen: {tcp: ':1'}\n", `line 1: listen.tcp: "" is reachable from other machines`},
		{"TCP for all, in the clear", "listen: {tcp: 'example.com:1', insecure: true}\n", `line 1: listen.tcp: "example.com" is not an IP address; write an address such as 0.0.0.0:7878 for all interfaces`},
		{"TLS without a key", "listen: {tcp: '0.0.0.0:1', tls: {certificate: /c}}\n", "line 1: listen.tls.certificate: /c is set, and listen.tls.key is not; write the file with its private key (PEM)"},
		{"TLS without a certificate", "listen:\n  tcp: 0.0.0.0:1\n  tls:\n    key: /k\n", "line 4: listen.tls.key: /k is set, and listen.tls.certificate is not; write the file with its certificate (PEM)"},
		{"TLS for nobody", "listen: {tls: {certificate: /c, key: /k}}\n", "line 1: listen.tls: is set, but no listener uses TLS; set listen.tcp or listen.mcp_tcp, or remove it"},
		{"an index without a listener", "listen: {unix: s, mcp_unix: '', skills_index: true}\n", "line 1: listen.skills_index: true, but no listener serves MCP, which has the index; set listen.mcp_tcp"},
		{"TLS that is insecure", "listen: {tcp: '0.0.0.0:1', insecure: true, tls: {certificate: /c, key: /k}}\n", "line 1: listen.insecure: true, but listen.tls encrypts every TCP listener; remove one of the two"},
		{"TLS without credentials", "listen: {tcp: '0.0.0.0:1', tls: {certificate: /c, key: /k}}\n", "line 1: listen.tls: lets other machines connect, but nobody on them could be identified; set identity.tokens, identity.authorities, identity.spiffe or identity.issuers"},
		{"insecure without credentials", "listen: {tcp: '0.0.0.0:1', insecure: true}\n", "line 1: listen.insecure: lets other machines connect, but nobody on them could be identified"},
		{"TLS without credentials on loopback", "listen: {tcp: '127.0.0.1:1', tls: {certificate: /c, key: /k}}\n", "line 1: listen.tls: with TLS every caller needs a credential, also on a loopback address, but no credentials are configured; set identity.tokens, identity.authorities, identity.spiffe or identity.issuers, or remove listen.tls"},
		{"insecure on loopback", "listen: {tcp: '127.0.0.1:1', insecure: true}\n", "line 1: listen.insecure: true, but every TCP listener is on a loopback address, which needs no TLS; remove it"},
		{"a caller", "identity:\n  callers:\n    - {caller: alice, tenant: a, role: read}\n", `line 3: identity.callers[0].caller: "alice" is no caller; write uid:N, gid:N, subject:CN=NAME or spiffe://DOMAIN/PATH`},
		{"a caller's tenant", "identity: {callers: [{caller: 'uid:1', tenant: A, role: read}]}\n", `line 1: identity.callers[0].tenant: "A" is not a name of a tenant`},
		{"a caller's role", "identity: {callers: [{caller: 'uid:1', tenant: a, role: root}]}\n", `line 1: identity.callers[0].role: "root" is not a role; write read, invoke, admin or operator`},
		{"a caller without a role", "identity: {callers: [{caller: 'uid:1', tenant: a}]}\n", "identity.callers[0].role: is not set; write read, invoke, admin or operator"},
		{"a caller twice", "identity: {callers: [{caller: 'uid:1', tenant: a, role: read}, {caller: 'uid:1', tenant: b, role: read}]}\n", "identity.callers[1].caller: uid:1 is listed twice; remove one of the two"},
		{"a subject without an authority", "identity: {callers: [{caller: 'subject:CN=a', tenant: a, role: read}]}\n", "identity.callers[0].caller: subject:CN=a is the subject of a certificate, but identity.authorities is not set"},
		{"a SPIFFE ID without a bundle", "identity: {callers: [{caller: 'spiffe://e.org/a', tenant: a, role: read}]}\n", "identity.callers[0].caller: spiffe://e.org/a is of the trust domain e.org, but identity.spiffe does not have it; write spiffe: {e.org: FILE}"},
		{"a trust domain", "identity: {spiffe: {E/a: f}}\n", `line 1: identity.spiffe.E/a: "E/a" is not a trust domain; write a name such as example.org`},
		{"a trust domain without a file", "identity: {spiffe: {e.org: ''}}\n", "line 1: identity.spiffe.e.org: is empty; write the file"},
		{"an issuer", "identity: {issuers: [{issuer: 'http://e.org', audience: a, tenant: a, role: read}]}\n", `identity.issuers[0].issuer: "http://e.org" is not encrypted; write https://HOST`},
		{"an issuer twice", "identity: {issuers: [{issuer: 'https://e.org', audience: a, tenant: a, role: read}, {issuer: 'https://e.org', audience: b, tenant: b, role: read}]}\n", "identity.issuers[1].issuer: https://e.org is listed twice"},
		{"an issuer without an audience", "identity: {issuers: [{issuer: 'https://e.org', tenant: a, role: read}]}\n", "identity.issuers[0].audience: is empty; write the audience"},
		{"an issuer without a tenant", "identity: {issuers: [{issuer: 'https://e.org', audience: a, role: read}]}\n", "identity.issuers[0]: set one of tenant and tenant_claim"},
		{"an issuer's tenant", "identity: {issuers: [{issuer: 'https://e.org', audience: a, tenant: A, role: read}]}\n", `identity.issuers[0].tenant: "A" is not a name of a tenant`},
		{"an issuer's tenants", "identity: {issuers: [{issuer: 'https://e.org', audience: a, tenant_claim: t, tenants: [a, B], role: read}]}\n", `identity.issuers[0].tenants[1]: "B" is not a name of a tenant`},
		{"an issuer's tenant and tenants", "identity: {issuers: [{issuer: 'https://e.org', audience: a, tenant: a, tenants: [a], role: read}]}\n", "identity.issuers[0].tenants: is for tenant_claim, which is not set; remove it"},
		{"an issuer's two roles", "identity: {issuers: [{issuer: 'https://e.org', audience: a, tenant: a, role: read, role_claim: r}]}\n", "identity.issuers[0]: set one of role and role_claim"},
		{"an issuer's clock", "identity: {issuers: [{issuer: 'https://e.org', audience: a, tenant: a, role: read, clock_skew: 1h}]}\n", "identity.issuers[0].clock_skew: 1h0m0s; must be 0s to 5m0s"},
		{"TCP without a port", "listen: {tcp: 127.0.0.1}\n", "missing port"},
		{"TCP port", "listen: {tcp: 127.0.0.1:http}\n", "is not a port"},
		{"no listener", "listen: {unix: ''}\n", "line 1: listen: unix and tcp are both empty, so no client could reach the daemon; set one of them"},
		{"long socket", "listen: {unix: /" + strings.Repeat("x", 120) + "}\n", "at most 107"},
		{"default above max", "limits: {max: {memory: 64MiB}}\n", "line 1: limits.default.memory: 512MiB is above limits.max.memory, 64MiB; lower it or raise the maximum"},
		{"an idle time above the time", "sessions: {idle_ttl: 1000h}\n", "line 1: sessions.idle_ttl: 1000h0m0s is above sessions.ttl, 720h0m0s; lower it or raise sessions.ttl"},
		{"a session above all sessions", "sessions:\n  bytes: 10GiB\n  total_bytes: 2GiB\n", "line 2: sessions.bytes: 10GiB is above sessions.total_bytes, 2GiB; lower it or raise sessions.total_bytes"},
		{"a file above all files", "artifacts: {file_bytes: 1GiB, total_bytes: 1MiB}\n", "line 1: artifacts.file_bytes: 1GiB is above artifacts.total_bytes, 1MiB; lower it or raise artifacts.total_bytes"},
		{"zero default", "limits: {default: {processes: 0}}\n", "line 1: limits.default.processes: 0; must be more than 0"},
		{"too little memory", "limits: {default: {memory: 1MiB}}\n", "line 1: limits.default.memory: 1MiB is too small to start a sandbox; write at least 8MiB"},
		{"too few open files", "limits: {default: {open_files: 16}}\n", "line 1: limits.default.open_files: 16 are too few to start a program; write at least 32"},
		{"long wall time", "limits: {max: {wall_time: 601s}}\n", "line 1: limits.max.wall_time: 10m1s is too long; write at most 10m0s"},
		{"cgroup", "cgroup_parent: relative\n", "cgroup_parent"},
		{"ids of accounts", "ids: {first: 1000}\n", "line 1: ids.first: 1000 is in the range of accounts; write 65536 or more"},
		{"few ids", "ids: {count: 40}\nconcurrency: {running: 4}\n", "ids.count: 40 ids are enough for 9 sandboxes, but concurrency.running, concurrency.reserved, prepared.sandboxes and a build need 16; write at least 68"},
		{"hardly an id", "ids: {count: 2}\nprepared: {sandboxes: 0}\n", "ids.count: 2 ids are enough for 0 sandboxes"},
		{"more than a number holds", "concurrency: {running: 9223372036854775807}\n", "line 1: concurrency.running: 9223372036854775807; all ids that a daemon can use are enough for 1023 sandboxes"},
		{"more than there are ids for", "concurrency: {running: 5000}\n", "line 1: concurrency.running: 5000; all ids that a daemon can use are enough for 1023 sandboxes, but concurrency.running, concurrency.reserved, prepared.sandboxes and a build need 5012; lower it"},
		{"more reserved than there are ids for", "grace: 1s\nconcurrency:\n  reserved: 99999\n", "line 3: concurrency.reserved: 99999; all ids that a daemon can use are enough for 1023 sandboxes"},
		{"more reserved than a number holds", "concurrency: {running: 9223372036854775807, reserved: 9223372036854775807}\n", "all ids that a daemon can use are enough for 1023 sandboxes"},
		{"fewer than none reserved", "concurrency: {reserved: -1}\n", "line 1: concurrency.reserved: -1 is negative; write 0 or more"},
		{"ids of helpers among those of sandboxes", "ids: {first: 300000, network: 296000}\n", "line 1: ids.network: the 4096 ids from 296000 on overlap with the ids from ids.first to the end of ids.count, 300000 to 365535; write another id, or 0 for the one after the range"},
		{"ids of helpers among those of accounts", "ids: {network: 1000}\n", "line 1: ids.network: 1000 is in the range of accounts; write 65536 or more, or 0"},
		{"no ids for helpers after the first id", "ids: {first: 4294900000}\n", "line 1: ids.first: 4294900000; the 4096 ids after the range, which the network needs, go past the last id, 4294967294; write at most 4294897663, or set ids.network"},
		{"no ids for helpers after all", "ids: {count: 4026530000}\n", "line 1: ids.count: 4026530000; the 4096 ids after the range, which the network needs, go past the last id, 4294967294; write at most 4026527743, or set ids.network"},
		{"a first id past the end", "ids: {first: 4294967000}\n", "line 1: ids.first: 4294967000; the 65536 ids of ids.count from it on go past the last id, 4294967294; write at most 4294897663"},
		{"ids of helpers past the end", "ids: {network: 4294966000}\n", "line 1: ids.network: the 4096 ids from 4294966000 on go past the last id, 4294967294; write another id"},
		{"ids past the end", "ids: {first: 4294967000, count: 1000}\n", "ids.count"},
		{"a boundary that is none", "boundaries: {allow_missing: [swap, sawp]}\n", `line 1: boundaries.allow_missing[1]: there is no boundary "sawp"; did you mean swap?`},
		{"a boundary that must be there", "boundaries: {allow_missing: [user namespace]}\n", `line 1: boundaries.allow_missing[0]: "user namespace" cannot be skipped; skillrund --doctor lists the boundaries`},
		{"a report that must be there", "boundaries: {allow_missing: [complete report]}\n", `line 1: boundaries.allow_missing[0]: "complete report" cannot be skipped; skillrund --doctor lists the boundaries`},
		{"a boundary twice", "boundaries: {allow_missing: [swap, swap]}\n", `"swap" is listed twice`},
		{"nothing runs", "concurrency: {running: 0}\n", "line 1: concurrency.running: 0; must be more than 0"},
		{"memory for nothing", "concurrency: {memory: 1MiB}\n", "line 1: concurrency.memory: 1MiB is less than one execution gets by default (limits.default.memory), 512MiB; raise it, or write 0 for no bound"},
		{"processors for nothing", "concurrency: {cpus: 0.5}\n", "line 1: concurrency.cpus: 0.5 is less than one execution counts by default (limits.default.cpus), 1; raise it, or write 0 for no bound"},
		{"no connections", "listen: {connections: 0}\n", "line 1: listen.connections: 0; must be 1 to 65536"},
		{"more connections of a peer", "listen: {peer_connections: 2000}\n", "line 1: listen.peer_connections: 2000; must be 1 to listen.connections, 1024"},
		{"log", "log: {format: xml}\n", "text or json"},
		{"arguments in the log", "log: {arguments: all}\n", `line 1: log.arguments: "all" is unknown; write off, hash or truncated`},
		{"audit: small files", "audit: {file_bytes: 1KiB}\n", `line 1: audit.file_bytes: 1KiB is too small; write at least 64KiB`},
		{"audit: one file", "audit: {files: 1}\n", `line 1: audit.files: 1; write 2 or more, because the oldest file is removed when a new one begins`},
		{"log level", "log: {level: loud}\n", `line 1: log.level: "loud" is not a log level; write debug, info, warn or error`},
		{"a rule of another tool", "without_allowed_tools: [scripts, Read]\n", `line 1: without_allowed_tools[1]: "Read": not a Bash rule: write scripts, or a rule such as Bash(git log:*)`},
		{"a rule that does not parse", "without_allowed_tools: ['Bash(ls']\n", `line 1: without_allowed_tools[0]: "Bash(ls": its parentheses don't match`},
		{"an unknown word for rules", "without_allowed_tools: everything\n", `line 1: without_allowed_tools: "everything" is not nothing, scripts or a list of rules`},
		{"a switch", "shell: maybe\n", `line 1: shell: "maybe" is not true or false`},
		{"a list", "skills: {a: b}\n", "line 1: skills: a mapping is not a list; write [a, b]"},
		{"a root without a path", "skills: [/a, {recursive: true}]\n", "line 1: skills[1].path: is empty; write the folder that holds the skills"},
		{"a namespace", "skills:\n- path: /a\n  namespace: a/b\n", `line 3: skills[0].namespace: "a/b" is not a namespace; write at most 64 lowercase letters, digits and single hyphens`},
		{"a key of a root", "skills: [{path: /a, recursiv: true}]\n", "line 1: skills[0].recursiv: unknown key; did you mean recursive?"},
		{"a switch of a root", "skills:\n- path: /a\n  recursive: deep\n", `line 3: skills[0].recursive: "deep" is not true or false`},
		{"no mapping", "limits:\n  default: 5\n", `line 2: limits.default: "5" is not a mapping; write keys with their values`},
		{"a list for all", "- x\n", "line 1: a list is not a mapping"},
		{"a key twice", "grace: 1s\ndrain: 1s\ngrace: 2s\n", "line 3: grace: the key is on line 1 already; remove one of the two"},
		{"an id below zero", "ids: {first: -1}\n", `line 1: ids.first: "-1" is not a whole number`},
		{"itself", "skills: &a [*a]\n", "line 1: skills[0]: a list is not a mapping"},
		{"a rule with a blank after the colon", "network:\n  allow:\n    - a.example\n    - example.com: 443\n", `line 4: network.allow[1]: a mapping is not a rule; write it in quotes, such as "example.com:443" or "[2001:db8::7]:443"`},
		{"a rule in brackets", "network:\n  allow: [\n    [2001:db8::7]:443]\n", `line 3: network.allow[0]: a mapping is not a rule; write it in quotes`},
		{"a list in a list of rules", "network: {deny: [[a.example]]}\n", "line 1: network.deny[0]: a list is not a rule; write it in quotes"},
		{"a mapping in a list of texts", "network_resolvers: [{a: b}]\n", "line 1: network_resolvers[0]: a mapping is not a text; write it in quotes"},
		{"an empty item", "network:\n  allow:\n    - a.example\n    -\n", "line 4: network.allow[1]: the item is empty; write a text, or remove the item"},
		{"a null", "network: {allow: [~, 'a b']}\n", "2 errors\n  line 1: network.allow[0]: the item is empty; write a text, or remove the item\n  line 1: network.allow[1]: \"a b\""},
		{"a network of a list", "network: [public]\n", "line 1: network: a list is not a mapping; write none, or {allow: [public]}"},
		{"a skill of a list", "network: {skills: {pdf: [public]}}\n", "line 1: network.skills.pdf: a list is not a mapping; write none, or {allow: [public]}"},
		{"a protocol", "network: {allow: ['example.com:443/tpc']}\n", `line 1: network.allow[0]: "example.com:443/tpc": "tpc" is no protocol; write /tcp or /udp`},
		{"a star without quotes", "network:\n  allow:\n    - *.example.com\n", `line 3: did not find expected alphabetic or numeric character; write a text that begins with * or & in quotes, such as "*.example.com"`},
		{"a star before a name without quotes", "network: {allow: [*example]}\n", `unknown anchor 'example' referenced; write a text that begins with * or & in quotes`},
		{"a tab before a key", "network:\n\tallow: [public]\n", "line 2: a tab; indent with spaces"},
		{"a tab after a value", "shell: true\n\n\tgrace: 1s\n", "line 3: a tab; indent with spaces"},
		{"a tab after a dash", "skills:\n  -\t/a\n  - /b\n\t- /c\n", "a tab; indent with spaces"},
		{"a character that begins no text", "grace: 1s\nshell: @on\n", "line 2: found character that cannot start any token; write the text in quotes"},
		{"a bracket that is not closed", "grace: 1s\nnetwork: {allow: [public]\n", "line 2: did not find expected ',' or '}'"},
		{"a word as a rule", "network: {allow: [a.example, 'true']}\n", `line 1: network.allow[1]: "true": true means nothing in a rule; for all public addresses, write public`},
		{"a word as a deny rule", "network: {deny: ['localhost:80']}\n", `line 1: network.deny[0]: "localhost:80": localhost means nothing in a rule; for the machine, write its address`},
		{"none as a deny rule", "network: {deny: [none]}\n", `line 1: network.deny[0]: "none": none is no deny rule`},
		{"no skill's name", "network: {skills: {'a..b': none}}\n", `line 1: network.skills.a..b: "a..b" names no skill`},
		{"no skill's name with a digest", "network: {skills: {'a/b/c@sha256:" + strings.Repeat("0", 64) + "': none}}\n", `names no skill`},
		{"a boundary of no name", "boundaries: {allow_missing: [swaps]}\n", `line 1: boundaries.allow_missing[0]: there is no boundary "swaps"; did you mean swap?`},
		{"connections in words", "network_limits: {connections: many}\n", `line 1: network_limits.connections: "many" is not a whole number; write one such as 100`},
		{"eleven mistakes", "network_resolvers: [a, b, c, d, e, f, g, h, i, j, k]\n", "line 1: network_resolvers[9]: \"j\" is not an address; write 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53\n  line 1: network_resolvers[10]"},
		{"message size", "message_bytes: 1\n", "line 1: message_bytes: 1; must be 64KiB to 256MiB"},
		{"processors", "limits: {default: {cpus: two}}\n", `line 1: limits.default.cpus: "two" is not a number of processors; write 0.01 or more, or 0 for no limit`},
		{"too few processors", "limits: {default: {cpus: 0.009}}\n", `"0.009" is not a number of processors`},
		{"no number of processors", "limits: {max: {cpus: .nan}}\n", `".nan" is not a number of processors`},
		{"more processors than the most", "limits: {default: {cpus: 2}, max: {cpus: 1.5}}\n", "line 1: limits.default.cpus: 2 is above limits.max.cpus, 1.5; lower it or raise the maximum"},
		{"zygote", "prepared: {zygote: false}\n", "line 1: prepared.zygote: false, but the zygote makes prewarmed sandboxes and Python zygotes; write true, or set prepared.sandboxes and prepared.python_zygotes to 0"},
		{"fast exit", "prepared: {python_fast_exit: slow}\n", `line 1: prepared.python_fast_exit: "slow" is not true or false`},
		{"log level's kind", "log: {level: [info]}\n", "line 1: log.level: a list is not a log level; write debug, info, warn or error"},
		{"request bytes", "request_bytes: 1MiB\n", "line 1: request_bytes: 1MiB is less than one message of message_bytes, 16MiB; write 0 or at least that"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadConfig(writeConfig(t, tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

// One run reports every mistake of a file, each with its line, in the order of the lines.
func TestConfigReportsEverything(t *testing.T) {
	path := writeConfig(t, `netwrok: none
grace: 5 minutes
limits:
  default:
    memory: 8GiB
    cpus: two
  max: {processes: 0, open_files: many}
listen:
  tcp: 0.0.0.0:1
  unix_mode: 0999
boundaries:
  allow_missing:
    - sawp
    - swap
    - swap
shell: perhaps
artifacts: 5
images:
  a: {rootfs: /}
drain: 0s
`)
	_, err := loadConfig(path)
	want := "config " + path + `: 14 errors
  line 1: netwrok: unknown key; did you mean network?
  line 2: grace: "5 minutes" is not a duration; write 30s, 1m30s or 250ms
  line 5: limits.default.memory: 8GiB is above limits.max.memory, 4GiB; lower it or raise the maximum
  line 6: limits.default.cpus: "two" is not a number of processors; write 0.01 or more, or 0 for no limit
  line 7: limits.max.open_files: "many" is not a whole number; write one such as 100
  line 7: limits.max.processes: 0; must be more than 0
  line 9: listen.tcp: "0.0.0.0" is reachable from other machines, and listen.tls is not set; write a loopback address such as 127.0.0.1:7878, or set listen.tls or listen.insecure
  line 10: listen.unix_mode: "0999" is not a file mode; write it in octal, such as 0660
  line 13: boundaries.allow_missing[0]: there is no boundary "sawp"; did you mean swap?
  line 15: boundaries.allow_missing[2]: "swap" is listed twice; remove one of the two
  line 16: shell: "perhaps" is not true or false
  line 17: artifacts: "5" is not a mapping; write keys with their values
  line 19: images.a.rootfs: / contains /var/lib/skillrun, which no sandbox may see; write a directory with the root file system alone
  line 20: drain: 0s; must be more than 0`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// inspect finds everything that the start would refuse, names the keys, and changes nothing.
func TestInspectNamesKeys(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the root file systems of the configuration must belong to root")
	}
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"file": 0o600, "socket": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/var/tmp", filepath.Join(dir, "root", "tmp")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "c.yaml")
	text := `skills:
  - none
  - file
state_dir: file/state
run_dir: file
listen: {unix: socket, mcp_unix: file/mcp.sock, tcp: "0.0.0.0:0", tls: {certificate: file, key: no.key}}
environments: {wheels: nowhere, tarballs: file}
python: embedded
network: {allow: [public]}
identity: {authorities: file, tokens: no/tokens, spiffe: {e.org: file}, issuers: [{issuer: "https://e.org", audience: a, tenant: a, role: read, authorities: no.crt}]}
images: {a: {rootfs: root}, b: {rootfs: gone}, unused: {rootfs: gone}}
runtimes:
  default: a
  python: b
tracing: {endpoint: "https://collector:4317", ca: file, headers_file: no.headers}
secrets_dir: no.secrets
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, found, err := readConfig(path)
	if err != nil || found.err() != nil {
		t.Fatal(err, found.err())
	}
	c.inspect(t.Context(), filepath.Join(dir, "skillrund"), found.bad)
	err = found.err()
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{
		"line 2: skills[0]: stat " + dir + "/none: no such file or directory; write the folder",
		"line 3: skills[1]: " + dir + "/file is not a directory",
		"line 4: state_dir: stat " + dir + "/file/state: not a directory",
		"line 5: run_dir: " + dir + "/file is not a directory",
		"line 6: listen.unix: " + dir + "/socket exists and is not a socket; remove it",
		"line 6: listen.mcp_unix: lstat " + dir + "/file/mcp.sock: not a directory",
		"line 6: listen.tls: stat " + dir + "/no.key: no such file or directory; write a certificate and its private key, both in PEM",
		"line 7: environments.wheels: stat " + dir + "/nowhere: no such file or directory",
		"line 7: environments.tarballs: " + dir + "/file is not a directory; write the directory with the .tgz files of Node packages",
		"line 8: python: embedded needs the program skillrun-python in the directory of skillrund: stat " + dir + "/skillrun-python: no such file or directory",
		"line 9: network: a network needs the program skillrun-network in the directory of skillrund: stat " + dir + "/skillrun-network: no such file or directory",
		"line 10: identity.authorities: " + dir + "/file has no certificate in PEM",
		"line 10: identity.tokens: stat " + dir + "/no: no such file or directory; write a file in a directory that exists",
		"line 10: identity.spiffe.e.org: " + dir + "/file: it has no certificate in PEM",
		"line 10: identity.issuers[0].authorities: open " + dir + "/no.crt: no such file or directory",
		"line 11: images.a.rootfs: its /tmp is a link",
		"line 11: images.b.rootfs: ",
		"line 15: tracing.ca: " + dir + "/file has no certificate in PEM; write a file with the receiver's authority (PEM)",
		"line 16: secrets_dir: stat " + dir + "/no.secrets: no such file or directory; write the directory that has a directory of secrets for each tenant",
		"line 15: tracing.headers_file: open " + dir + "/no.headers: no such file or directory",
	} {
		if !strings.Contains(err.Error(), "  "+want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	if n := len(err.(*configError).problems); n != 20 {
		t.Errorf("%d problems, want 20: %v", n, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("inspect made something: %v, %v", entries, err)
	}
}

// A key that bounds the whole may be lowered alone, also below the default of a part.
func TestConfigLowersTheWhole(t *testing.T) {
	for _, text := range []string{"sessions: {ttl: 1h}\n", "sessions: {total_bytes: 1MiB}\n", "artifacts: {total_bytes: 1MiB}\n",
		"sessions: {bytes: 10GiB}\ntenants: {acme: {quotas: {session_bytes: 20GiB}}}\n"} {
		if _, err := loadConfig(writeConfig(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// inspect accepts directories that do not exist yet if the daemon can create them.
func TestInspectPasses(t *testing.T) {
	path := writeConfig(t, "state_dir: a/b/c\nrun_dir: run\nlisten: {unix: run/s.sock}\n")
	// Only the user may enter the parent of t.TempDir's directories.
	if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o711); err != nil {
		t.Fatal(err)
	}
	c, found, err := readConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	c.inspect(t.Context(), "", found.bad)
	if err := found.err(); err != nil {
		t.Error(err)
	}
}

// The processes of sandboxes could not reach a run directory below a closed one.
func TestInspectClosedDirectory(t *testing.T) {
	path := writeConfig(t, "state_dir: state\nrun_dir: a/run\nlisten: {unix: s.sock}\n")
	c, found, err := readConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	c.inspect(t.Context(), "", found.bad)
	closed := filepath.Dir(filepath.Dir(path))
	want := "line 2: run_dir: " + closed + " has mode 0700, so sandboxes can't reach " + filepath.Dir(path) + "/a/run in it; run chmod o+x " + closed
	if err := found.err(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// With TLS, or with the word insecure, the daemon listens for other machines.
func TestConfigForOtherMachines(t *testing.T) {
	path := writeConfig(t, "listen: {tcp: ':1', mcp_tcp: '[::]:2', tls: {certificate: tls/c, key: tls/k}}\nidentity: {tokens: t}\n")
	c, err := loadConfig(path)
	if dir := filepath.Dir(path); err != nil || c.Listen.TLS.Certificate != dir+"/tls/c" || c.Listen.TLS.Key != dir+"/tls/k" {
		t.Errorf("got %+v, %v", c.Listen, err)
	}
	if c, err = loadConfig(writeConfig(t, "listen: {tcp: '0.0.0.0:1', insecure: true}\nidentity: {tokens: t}\n")); err != nil || c.usesTLS() {
		t.Errorf("got %+v, %v", c.Listen, err)
	}
	// The metrics listener alone may have such an address, too.
	for _, text := range []string{
		"listen: {metrics_tcp: '0.0.0.0:1', tls: {certificate: c, key: k}}\nidentity: {tokens: t}\n",
		"listen: {metrics_tcp: '0.0.0.0:1', insecure: true}\nidentity: {tokens: t}\n",
		"network: {}\nlisten: {tcp: '127.0.0.1:2', metrics_tcp: '127.0.0.1:1'}\n",
	} {
		if _, err := loadConfig(writeConfig(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
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
}

// Each form of the key network, and the rules that a skill gets from it.
func TestConfigOfNetwork(t *testing.T) {
	for _, tt := range []struct {
		text        string
		rules, demo string // allow and deny rules; empty: none
	}{
		{"", "", ""},
		{"network: none", "", ""},
		{"network:", "", ""},
		{"network: {}", "public", "public"},
		{"network: {allow: []}", "none", "none"},
		{"network: {allow: }", "none", "none"},
		{"network: {allow: [none]}", "none", "none"},
		{"network: {deny: [10.0.0.0/8]}", "public - 10.0.0.0/8", "public - 10.0.0.0/8"},
		{"network: {allow: ['*.example.com:80,443'], skills: {demo: {allow: [a.example, b.example], deny: [b.example:80]}}, deny: [c.example]}", "*.example.com:80,443 - c.example", "a.example b.example - b.example:80 c.example"},
		{"network: {skills: {demo: none}}", "public", ""},
		{"network: {allow: [], skills: {demo: {}}}", "none", "public"},
	} {
		c, err := loadConfig(writeConfig(t, tt.text+"\n"))
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		n := c.Network.network()
		demo, own := n.Skills["demo"]
		if !own {
			demo = n.Rules
		}
		if got := rulesText(n.Rules); got != tt.rules {
			t.Errorf("%s: got %q, want %q", tt.text, got, tt.rules)
		}
		if got := rulesText(demo); got != tt.demo {
			t.Errorf("%s: the skill demo: got %q, want %q", tt.text, got, tt.demo)
		}
	}
}

func rulesText(r *policy.Rules) string {
	if r == nil {
		return ""
	}
	allow, deny := r.Strings()
	text := strings.Join(allow, " ")
	if len(deny) > 0 {
		text += " - " + strings.Join(deny, " ")
	}
	return text
}

// A tenant's rules and the daemon's count both.
func TestConfigOfTenantsNetwork(t *testing.T) {
	c, err := loadConfig(writeConfig(t, `
network: {allow: [public, 10.0.0.0/8:5432], deny: [evil.example], skills: {pdf: {allow: [p.example, q.example]}}}
tenants:
  inherits: {}
  closed: {policy: {network: none}}
  narrow: {policy: {network: {allow: ['*.example', '10.1.0.0/16:*', '10.2.0.1:22'], skills: {pdf: {allow: [q.example, r.example]}}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]string{
		"inherits": {"public 10.0.0.0/8:5432 - evil.example", "p.example q.example - evil.example"},
		"closed":   {"", ""},
		"narrow":   {"*.example 10.1.0.0/16:5432 - evil.example", "q.example - evil.example"},
	}
	for _, got := range c.tenantSet().All() {
		n := got.Policy.Network
		if rules := [2]string{rulesText(n.Rules), rulesText(n.Skills["pdf"])}; rules != want[got.Name] {
			t.Errorf("%s: got %q, want %q", got.Name, rules, want[got.Name])
		}
	}
}

// A file without --config is taken for a command.
func TestConfigWithoutItsFlag(t *testing.T) {
	path := writeConfig(t, "")
	for arg, want := range map[string]string{path: "is a file, not a command; write --config " + path, "adit": "the commands are audit and token"} {
		if err := run([]string{arg}, "", true, false, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
