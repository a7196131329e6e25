package skillrun

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
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
	_, port, err := net.SplitHostPort(host)
	if err != nil || strings.Contains(host, "/") { // such as https://host:port
		return "", fmt.Errorf("address %q: want unix:///path or host:port", address)
	}
	// Package net refuses such a number when it connects, and the client would wait for a daemon there.
	if n, err := strconv.Atoi(port); err == nil && (n < 1 || n > math.MaxUint16) || errors.Is(err, strconv.ErrRange) {
		return "", fmt.Errorf("address %q: the port must be 1 to 65535", address)
	}
	return "dns:///" + host, nil
}
