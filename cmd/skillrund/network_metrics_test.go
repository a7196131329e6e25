package main

import (
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/metrics"
)

// The metrics count connections, bytes and refusals of sandboxes, by tenant and by kind of refusal.
func TestNetworkMetrics(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "listen: {unix: s.sock, metrics_tcp: '127.0.0.1:0'}\nnetwork: {'skills': {calculator: {allow: [public]}}}\n")
	want := func(lines ...string) {
		t.Helper()
		_, text := d.page(metrics.Path)
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("no line %s in\n%s", line, text)
			}
		}
	}
	want("skillrun_network_helpers 0", "skillrun_networks 0", `skillrun_network_helper_deaths_total{cause="memory"} 0`)
	d.run(code("calculator", "import socket\ntry: socket.create_connection(('169.254.169.254', 80))\nexcept OSError as e: print(e.strerror)")).wantStdout(t, "Connection refused\n")
	want("skillrun_network_helpers 1", "skillrun_networks 0",
		`skillrun_network_denied_total{kind="link-local",tenant="default"} 1`, `skillrun_network_denied_total{kind="private",tenant="default"} 0`,
		`skillrun_network_denied_total{kind="repeated",tenant="default"} 0`, `skillrun_network_connections_total{tenant="default"} 0`,
		`skillrun_network_bytes_total{direction="sent",tenant="default"} 0`)
}
