package skillrun

import (
	"fmt"
	"net"
	"strings"
)

// dialTarget converts an address of Dial into a gRPC target. gRPC takes any string as a host name
// and would report a mistake only at the first call, so dialTarget refuses a host without a port
// at once.
func dialTarget(address string) (string, error) {
	switch {
	case address == "":
		return DefaultAddress, nil
	case strings.HasPrefix(address, "/"):
		return "unix://" + address, nil
	case strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:"):
		return address, nil
	}
	host := strings.TrimPrefix(address, "tcp://")
	if strings.Contains(host, "://") {
		// A resolver that gRPC knows, such as dns:///host:port.
		return host, nil
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		return "", fmt.Errorf("address %q: want unix:///path or host:port", address)
	}
	return "dns:///" + host, nil
}
