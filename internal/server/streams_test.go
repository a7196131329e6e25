package server

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Every method with a stream counts in the tenant's quota of streams, because a slow reader keeps any stream open.
func TestAllStreamsCount(t *testing.T) {
	for method := range accessTable {
		service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatal(err)
		}
		m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
		if ours := strings.HasPrefix(service, "skillrun."); streaming[method] != (ours && (m.IsStreamingClient() || m.IsStreamingServer())) {
			t.Errorf("%s: counted is %v", method, streaming[method])
		}
	}
}
