package mcp

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// A refused message has an entry with the method, the tool and the address, over both transports.
func TestAudit(t *testing.T) {
	for _, transport := range []string{"lines", "http"} {
		t.Run(transport, func(t *testing.T) {
			dir := t.TempDir()
			log, err := audit.Open(audit.Config{
				Dir: dir, KeyFile: filepath.Join(dir, "key"), FileBytes: 1 << 20, Files: 2,
				Reason: func(error) string { return "OTHER" }, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			var role atomic.Int32
			role.Store(int32(identity.Read))
			d := startIdle(t, func(c *Config) {
				c.Audit = log
				c.Identify = func(identity.Credentials) (identity.Identity, error) {
					if role.Load() == int32(identity.None) {
						return identity.Identity{}, errors.New("the token was revoked")
					}
					return identity.Identity{Principal: alice, Role: identity.Role(role.Load())}, nil
				}
			})
			c := d.connect(t, transport, "")
			call := func(arguments string) error {
				_, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "bash", Arguments: json.RawMessage(arguments)})
				return err
			}
			if err := call(`{"command":"ls"}`); err == nil {
				t.Error("a reader called a tool")
			}
			role.Store(int32(identity.Invoke))
			if err := call(`{"command":7}`); err != nil { // a result with an error
				t.Error(err)
			}
			wants := []string{`"reason":"ROLE_REQUIRED"`, `"reason":"OTHER"`}
			if transport == "lines" {
				role.Store(int32(identity.None))
				if err := call(`{"command":"ls"}`); err == nil {
					t.Error("a caller without a credential called a tool")
				}
				wants = append(wants, `"reason":"UNIDENTIFIED"`)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(dir, "audit-000000000001.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range wants {
				n := 0
				for line := range strings.Lines(string(data)) {
					if strings.Contains(line, want) && strings.Contains(line, `"event":"call"`) && strings.Contains(line, `"method":"tools/call bash"`) &&
						strings.Contains(line, `"principal":"alice"`) && strings.Contains(line, `"address":"`) && strings.Contains(line, `"decision":"refused"`) {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%d entries with %s:\n%s", n, want, data)
				}
			}
		})
	}
}
