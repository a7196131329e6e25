package tracing

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// A client sends batches over gRPC. It implements otlptrace.Client. The SDK's own client,
// otlptracegrpc, registers gRPC's gzip for the whole process; the daemon would then unpack compressed
// requests, whose size package budget does not know.
type client struct {
	conn *grpc.ClientConn
	send collector.TraceServiceClient
}

// newClient does not connect yet.
func newClient(c Config) (*client, error) {
	u, err := parse(c.Endpoint)
	if err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if u.Scheme == "https" {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if config.RootCAs, err = readAuthorities(c.CA); err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		// A batch waits for a receiver that restarts, until exportTimeout.
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	}
	if c.Headers != "" {
		options = append(options, grpc.WithPerRPCCredentials(headers(c.Headers)))
	}
	conn, err := grpc.NewClient(u.Host, options...)
	if err != nil {
		return nil, err
	}
	return &client{conn, collector.NewTraceServiceClient(conn)}, nil
}

// Start does nothing: gRPC connects for the first batch.
func (*client) Start(context.Context) error { return nil }

func (c *client) Stop(context.Context) error { return c.conn.Close() }

// UploadTraces sends one batch.
func (c *client) UploadTraces(ctx context.Context, batch []*spans.ResourceSpans) error {
	r, err := c.send.Export(ctx, &collector.ExportTraceServiceRequest{ResourceSpans: batch})
	if err != nil {
		return err
	}
	if p := r.GetPartialSuccess(); p.GetRejectedSpans() > 0 {
		return &rejectedError{p.GetRejectedSpans(), p.GetErrorMessage()}
	}
	return nil
}

// parse returns an endpoint, http://host:port or https://host:port.
func parse(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is not the address of a receiver; write http://host:port, or https://host:port for TLS", endpoint)
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("%s://%s has more than a host and a port; OTLP over gRPC has no path, and credentials belong into the headers", u.Scheme, u.Host)
	}
	return u, nil
}
