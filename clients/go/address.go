package skillrun

import (
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/resolver"
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
	if scheme, _, ok := strings.Cut(host, "://"); ok && resolver.Get(scheme) != nil { // such as dns:///host:port
		return host, nil
	}
	if _, _, err := net.SplitHostPort(host); err != nil || strings.Contains(host, "/") { // such as https://host:port
		return "", fmt.Errorf("address %q: want unix:///path or host:port", address)
	}
	return "dns:///" + host, nil
}
