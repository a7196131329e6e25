// Package docs holds the documents true: the tests here read them and the
// sources.
package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/skillrun/skillrun/"

// mayImport has, for each package of the module, the packages of the module that it may import. It is
// the table of docs/architecture.md. A package without an entry is a mistake.
var mayImport = map[string][]string{
	"proto/skillrun/v1":               {},
	"sandbox":                         {"internal/failpoint", "internal/filelock", "sandbox/internal/cgroup", "sandbox/internal/mount", "sandbox/internal/netdev", "sandbox/internal/pid1", "sandbox/internal/preflight", "sandbox/internal/pseudofs", "sandbox/internal/pyzygote", "sandbox/internal/seccomp", "sandbox/internal/socket", "sandbox/internal/zygote"},
	"sandbox/internal/cgroup":         {"sandbox/internal/pseudofs"},
	"sandbox/internal/mount":          {"sandbox/internal/cgroup", "sandbox/internal/pid1"},
	"sandbox/internal/netdev":         {},
	"sandbox/internal/pid1":           {"sandbox/internal/seccomp", "sandbox/internal/socket"},
	"sandbox/internal/preflight":      {"sandbox/internal/cgroup", "sandbox/internal/mount", "sandbox/internal/pid1", "sandbox/internal/pseudofs", "sandbox/internal/seccomp"},
	"sandbox/internal/pseudofs":       {},
	"sandbox/internal/pyzygote":       {"sandbox/internal/pid1", "sandbox/internal/preflight", "sandbox/internal/pseudofs", "sandbox/internal/socket"},
	"sandbox/internal/seccomp":        {},
	"sandbox/internal/socket":         {},
	"sandbox/internal/zygote":         {"sandbox/internal/cgroup", "sandbox/internal/pid1", "sandbox/internal/pseudofs", "sandbox/internal/seccomp", "sandbox/internal/socket"},
	"internal/skill":                  {"internal/durable", "internal/skill/manifest", "internal/skill/snapshot"},
	"internal/skill/manifest":         {"internal/skill/snapshot", "internal/spelling", "internal/yamlerror"},
	"internal/spelling":               {},
	"internal/yamlerror":              {},
	"internal/beneath":                {},
	"internal/filelock":               {},
	"internal/quantity":               {},
	"internal/skill/snapshot":         {"internal/durable", "internal/filelock"},
	"internal/disktest":               {},
	"internal/scarcetest":             {},
	"internal/hosttest":               {"internal/runtime", "sandbox"},
	"internal/executor/executortest":  {"internal/executor", "internal/record", "internal/runtime", "internal/session", "internal/skill", "internal/skill/skilltest", "internal/workspace", "sandbox"},
	"internal/skill/skilltest":        {"internal/skill", "internal/skill/skilltest/folder", "internal/skill/snapshot"},
	"internal/skill/skilltest/folder": {},
	"internal/record":                 {"internal/durable", "internal/filelock", "internal/record/journal"},
	"internal/record/journal":         {"internal/filelock"},
	"internal/image":                  {"internal/durable", "internal/filelock"},
	"internal/permission":             {"internal/network/credential", "internal/network/policy", "internal/skill", "internal/skill/manifest", "internal/spelling"},
	"internal/runtime":                {"internal/durable", "internal/filelock", "internal/skill", "internal/skill/manifest"},
	"internal/runtime/embedded":       {},
	"internal/wellknown":              {},
	"internal/lint":                   {"internal/permission", "internal/runtime", "internal/skill", "internal/skill/manifest", "internal/skill/snapshot"},
	"internal/workspace":              {"sandbox", "internal/beneath"},
	"internal/session":                {"internal/durable", "internal/failpoint", "internal/filelock", "internal/quantity"},
	"internal/admission":              {},
	"internal/audit":                  {"internal/durable", "internal/filelock"},
	"internal/network/policy":         {},
	"internal/network/credential":     {"internal/network/policy"},
	"internal/network":                {"internal/network/credential", "internal/network/dial", "internal/network/policy", "internal/network/wire", "sandbox"},
	"internal/network/dial":           {"internal/network/credential", "internal/network/policy"},
	"internal/network/gateway":        {"internal/network/credential", "internal/network/dial", "internal/network/policy"},
	"internal/network/helper":         {"internal/network/gateway", "internal/network/policy", "internal/network/wire"},
	"internal/network/wire":           {"internal/network/credential", "internal/network/dial", "internal/network/policy"},
	"internal/network/networktest":    {},
	"internal/tenant":                 {"internal/admission", "internal/permission"},
	"internal/environment":            {"sandbox", "internal/beneath", "internal/durable", "internal/environment/download", "internal/runtime", "internal/skill", "internal/skill/manifest"},
	"internal/environment/download":   {"internal/skill/manifest"},
	"internal/executor":               {"sandbox", "internal/admission", "internal/audit", "internal/durable", "internal/environment", "internal/failpoint", "internal/network/credential", "internal/network/policy", "internal/quantity", "internal/skill", "internal/skill/manifest", "internal/skill/snapshot", "internal/record", "internal/permission", "internal/runtime", "internal/session", "internal/tenant", "internal/workspace"},
	"internal/toolview":               {"internal/executor", "internal/permission", "internal/runtime", "internal/session", "internal/skill", "internal/skill/manifest", "internal/skill/snapshot", "internal/workspace"},
	"internal/certtest":               {},
	"internal/buildversion":           {},
	"internal/durable":                {},
	anywhere:                          {},
	"internal/failpoint":              {},
	"internal/eventtest":              {"proto/skillrun/v1"},
	"internal/ingress":                {"internal/ingress/identity", "internal/ingress/ratelimit", "internal/ingress/reload"},
	"internal/ingress/identity":       {"internal/durable", "internal/filelock", "internal/ingress/ratelimit", "internal/ingress/reload", "internal/permission"},
	"internal/ingress/ratelimit":      {},
	"internal/ingress/reload":         {},
	"internal/ingress/budget":         {},
	"internal/metrics":                {"internal/executor", "internal/ingress", "internal/record", "sandbox"},
	"internal/tracing":                {},
	"internal/mcp":                    {"internal/audit", "internal/executor", "internal/ingress", "internal/ingress/identity", "internal/permission", "internal/skill", "internal/skill/manifest", "internal/skill/snapshot", "internal/toolview", "internal/wellknown"},
	"internal/server":                 {"internal/audit", "internal/executor", "internal/ingress", "internal/ingress/budget", "internal/ingress/identity", "internal/lint", "internal/network/credential", "internal/network/policy", "internal/permission", "internal/session", "internal/skill", "internal/skill/manifest", "internal/skill/snapshot", "internal/toolview", "proto/skillrun/v1"},
	"internal/bench":                  {"clients/go", "internal/record", "proto/skillrun/v1"},
	"internal/survey":                 {"clients/go", "internal/lint", "internal/skill/manifest", "proto/skillrun/v1"},
	"clients/go":                      {"proto/skillrun/v1"},
	"internal/mcp/bridge":             {"clients/go"},
	"cmd/skillrun":                    {"clients/go", "proto/skillrun/v1", "internal/bench", "internal/mcp/bridge", "internal/durable", "internal/survey", "internal/lint", "internal/quantity", "internal/skill/manifest", "internal/permission", "internal/wellknown", "internal/yamlerror"},
	"cmd/skillrun-network":            {"internal/buildversion", "internal/network/helper"},
	"cmd/skillrun-python":             {"internal/runtime/embedded"},
	"cmd/skillrund": {"sandbox", "internal/buildversion", "internal/durable", "internal/failpoint", "internal/filelock", "internal/environment", "internal/skill", "internal/skill/snapshot", "internal/spelling", "internal/yamlerror", "internal/record", "internal/permission", "internal/runtime", "internal/workspace",
		"internal/audit", "internal/executor", "internal/image", "internal/session", "internal/network", "internal/network/credential", "internal/network/policy", "internal/ingress", "internal/ingress/budget", "internal/ingress/identity", "internal/toolview", "internal/mcp", "internal/metrics", "internal/server", "internal/tracing", "internal/tenant", "internal/admission"},
	// Evaluates a list of system calls, for tests that compare a filter or a kernel with the list.
	"sandbox/internal/seccomp/seccomptest": {"sandbox/internal/seccomp"},
	"sandbox/internal/socket/sockettest":   {}, // the peer of a socket, for tests

	"deploy/sbom": {},
	"docs":        {},
}

// anywhere is a package that every package may import.
const anywhere = "internal/lazyregexp"

// onlyIn restricts libraries: the prefix of an import path, and the only packages of the module
// that may import it.
var onlyIn = map[string][]string{
	"github.com/opencontainers/":       {"sandbox", "sandbox/internal/cgroup", "sandbox/internal/pid1", "sandbox/internal/zygote"},
	"github.com/seccomp/":              {"sandbox/internal/seccomp"},
	"google.golang.org/grpc":           {"internal/bench", "internal/survey", "internal/server", "internal/tracing", "cmd/skillrund", "cmd/skillrun", "clients/go", "proto/skillrun/v1"},
	"google.golang.org/protobuf":       {"internal/server", "cmd/skillrund", "cmd/skillrun", "clients/go", "proto/skillrun/v1"},
	"github.com/mattn/go-sqlite":       {"internal/record"},
	"github.com/kluctl/":               {"internal/runtime/embedded"}, // 45 MB of data
	"mvdan.cc/sh/":                     {"internal/permission"},
	"github.com/modelcontextprotocol/": {"internal/mcp"},
	"github.com/google/go-container":   {"internal/image"},
	"github.com/klauspost/":            {"internal/image"},
	"golang.org/x/time/":               {"internal/admission", "internal/ingress/ratelimit", "internal/network/gateway", "internal/network/wire"},
	"gvisor.dev/":                      {"internal/network/gateway"},
	"github.com/miekg/dns":             {"internal/network/gateway"},
	"github.com/coreos/go-oidc/":       {"internal/ingress/identity"},
	"github.com/coreos/go-systemd/":    {"cmd/skillrund"},
	"github.com/spiffe/":               {"internal/ingress/identity"},
	"github.com/prometheus/":           {"internal/metrics"},
	// The interfaces of spans. The implementation is in one place.
	"go.opentelemetry.io/":                {"internal/executor", "internal/server", "internal/mcp", "internal/tracing", "clients/go", "cmd/skillrun"},
	"go.opentelemetry.io/otel/sdk":        {"internal/tracing"},
	"go.opentelemetry.io/otel/exporters/": {"internal/tracing"},
	"go.opentelemetry.io/proto/":          {"internal/tracing"},
	// It registers gzip with gRPC, and package budget counts bytes before they are unpacked.
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc": {},
	"google.golang.org/grpc/encoding/gzip":                            {},
}

// The sources are read here, not asked of the go command: a test that asks it
// passes from its cache after a forbidden import.
func TestImportsGoOneWay(t *testing.T) {
	seen := map[string]bool{}
	for dir, imports := range importsOf(t, "..") {
		allowed, known := mayImport[dir]
		if !known {
			t.Errorf("%s: not in the table of packages; a new package needs a reason", dir)
			continue
		}
		seen[dir] = true
		for _, path := range imports {
			if ours, ok := strings.CutPrefix(path, module); ok && ours != anywhere && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s, which its place does not allow", dir, ours)
			}
			for prefix, who := range onlyIn {
				if strings.HasPrefix(path, prefix) && !slices.Contains(who, dir) {
					t.Errorf("%s imports %s; only %v may", dir, path, who)
				}
			}
		}
	}
	for dir := range mayImport {
		if !seen[dir] {
			t.Errorf("%s: in the table of packages, and has no code", dir)
		}
	}
}

// importsOf returns the imports of the Go files beneath root, by folder. It leaves out test files,
// because tests may import more. Only the test files of docs count, since docs has no other Go files.
func importsOf(t *testing.T, root string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || path != root && strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root+"/"))
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") && dir != "docs" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		found[dir] = append(found[dir], []string{}...)
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[dir] = append(found[dir], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A test of the test: it finds a forbidden import in the sources of testdata/imports.
func TestImportsAreReadFromTheSources(t *testing.T) {
	found := importsOf(t, filepath.Join("testdata", "imports"))
	if got := found["internal/skill"]; !slices.Equal(got, []string{"google.golang.org/grpc"}) {
		t.Errorf("got %v, want [google.golang.org/grpc]", got)
	}
}
