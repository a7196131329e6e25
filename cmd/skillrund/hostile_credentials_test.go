package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/skillrun/skillrun/internal/certtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// badCredentials sends every kind of wrong credential. Each is answered before the request is read,
// and nothing runs.
func badCredentials(t *testing.T, _ *running, _ hostileCase) {
	i := certtest.NewIssuer(t)
	s := startSecured(t, `    - {caller: "uid:4242", tenant: acme, role: read}
  issuers:
    - {issuer: "`+i.URL+`", audience: skillrun, tenant_claim: tenant, tenants: [acme, globex], role_claim: role}
`)
	good := i.Sign(nil)
	plain := s.connect(nil)
	refused := func(name string, conn *grpc.ClientConn, ctx context.Context, text string) {
		t.Run(name, func(t *testing.T) {
			stream, err := pb.NewExecutionServiceClient(conn).Execute(ctx, shell("calculator", "echo hello"))
			if err == nil {
				_, err = stream.Recv()
			}
			wantReason(t, err, codes.Unauthenticated, "UNIDENTIFIED", text)
		})
	}
	refused("no credential", plain, t.Context(), "no credential was sent")
	for name, c := range badTokens(t, i) {
		refused(name, plain, with(t.Context(), c.token), c.reason)
	}
	past := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	for name, c := range map[string]struct {
		pair   *certtest.Pair
		reason string
	}{
		"another trust domain":   {s.clients.Client("", nil, "spiffe://example.com/agents/7"), "example.com"},
		"no URI":                 {s.clients.Client("stranger", nil), "subject:CN=stranger has no row"},
		"two SPIFFE IDs":         {s.clients.Client("", nil, "spiffe://example.org/agents/7", "spiffe://example.org/agents/8"), "more than one URI SAN"},
		"an expired certificate": {s.clients.Client("", past, "spiffe://example.org/agents/7"), "has expired"},
	} {
		refused(name, s.connect(c.pair), t.Context(), c.reason)
	}
	t.Run("without TLS", func(t *testing.T) { wantNoPlainText(t, s) })
	t.Run("TLS 1.1", func(t *testing.T) {
		config := s.trust()
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		if c, err := tls.Dial("tcp", s.address, config); err == nil {
			c.Close()
			t.Error("the daemon accepts TLS 1.1")
		}
	})
	t.Run("a user without a row", func(t *testing.T) { wantUserRefused(t, s) })
	t.Run("every method", func(t *testing.T) { wantEveryMethodRefused(t, plain) })

	for _, tenant := range []string{"acme", "globex"} {
		list, err := executionClient{pb.NewExecutionServiceClient(plain)}.ListExecutions(with(t.Context(), i.Sign(map[string]any{"tenant": tenant})), &pb.ListExecutionsRequest{})
		if err != nil || len(list.Executions) > 0 {
			t.Errorf("%s: got %v, %v; want no execution", tenant, list, err)
		}
	}
	t.Run("an authority that left the bundle", func(t *testing.T) { wantRotatedBundleRefused(t, s) })
	for name, secret := range map[string]string{"token": good, "signature": good[strings.LastIndexByte(good, '.')+1:]} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log has a %s", name)
		}
	}
}

// A badToken has words of the answer to it.
type badToken struct{ token, reason string }

// badTokens returns JSON Web Tokens that are not valid.
func badTokens(t *testing.T, i *certtest.Issuer) map[string]badToken {
	t.Helper()
	now := time.Now()
	published, err := i.PublicKey().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// An attacker's keys, which the header jku names. The daemon must not ask for them.
	var asked atomic.Int32
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: stranger.Public(), KeyID: "one", Algorithm: "ES256"}}})
	}))
	t.Cleanup(func() {
		keys.Close()
		if n := asked.Load(); n > 0 {
			t.Errorf("the daemon asked the address in a token %d times", n)
		}
	})
	forged := func(id string, headers ...map[jose.HeaderKey]any) string {
		return certtest.SignJWT(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: stranger, KeyID: id}}, i.Claims(nil), headers...)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	return map[string]badToken{
		"expired":             {i.Sign(map[string]any{"exp": now.Add(-time.Hour).Unix()}), "has expired"},
		"not yet valid":       {i.Sign(map[string]any{"nbf": now.Add(time.Hour).Unix()}), "not valid yet"},
		"of another service":  {i.Sign(map[string]any{"aud": "billing"}), "for another audience"},
		"an unknown issuer":   {i.Sign(map[string]any{"iss": "https://evil.example"}), "is not in identity.issuers"},
		"algorithm none":      {none + "." + strings.Split(i.Sign(nil), ".")[1] + ".", "its algorithm is not allowed"},
		"the key as a secret": {certtest.SignJWT(t, jose.SigningKey{Algorithm: jose.HS256, Key: published}, i.Claims(nil)), "its algorithm is not allowed"},
		"a path as key":       {forged("../../dev/null"), "the token"},
		"keys of an attacker": {forged("one", map[jose.HeaderKey]any{"jku": keys.URL}), "the token's signature"},
		"an empty subject":    {i.Sign(map[string]any{"sub": ""}), "claim sub"},
		"two tenants":         {i.Sign(map[string]any{"tenant": []string{"acme", "globex"}}), "names no tenant"},
		"no tenant of ours":   {i.Sign(map[string]any{"tenant": "default"}), "names no tenant"},
		"an operator":         {i.Sign(map[string]any{"role": "operator"}), "has no role"},
		"oversized":           {strings.Repeat("x", 9000), "a token has at most 8192"},
	}
}

// wantNoPlainText checks that HTTP/2 without TLS gets no answer on the TLS address.
func wantNoPlainText(t *testing.T, s *secured) {
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = pb.NewSystemServiceClient(conn).GetCapabilities(ctx, &pb.GetCapabilitiesRequest{})
	if code := status.Code(err); code != codes.Unavailable {
		t.Errorf("got %v, want Unavailable: no HTTP/2 connection", err)
	}
}

// wantUserRefused connects to the Unix socket as a user with permission to open it, but without a row.
func wantUserRefused(t *testing.T, s *secured) {
	socket := filepath.Join(s.dir, "s.sock")
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary(t, "skillrun"), "--address", "unix://"+socket, "run", "calculator", "scripts/calc.py", "1+1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 71234, Gid: 71234}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "uid:71234 has no row in identity.callers") {
		t.Errorf("got %v\n%s", err, out)
	}
}

// wantEveryMethodRefused calls each method of the contract, reflection, and methods that do not exist,
// without a credential.
func wantEveryMethodRefused(t *testing.T, conn *grpc.ClientConn) {
	want := map[string]codes.Code{
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": codes.Unauthenticated,
		"/grpc.channelz.v1.Channelz/GetServers":                     codes.Unimplemented,
		"/skillrun.v1.ExecutionService/Nothing":                     codes.Unimplemented,
	}
	each := func(f protoreflect.FileDescriptor) {
		for n := range f.Services().Len() {
			service := f.Services().Get(n)
			for m := range service.Methods().Len() {
				want["/"+string(service.FullName())+"/"+string(service.Methods().Get(m).Name())] = codes.Unauthenticated
			}
		}
	}
	for _, f := range []protoreflect.FileDescriptor{pb.File_skillrun_v1_execution_proto, pb.File_skillrun_v1_session_proto, pb.File_skillrun_v1_skill_proto, pb.File_skillrun_v1_system_proto, pb.File_skillrun_v1_tool_proto} {
		each(f)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	for method, want := range want {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err == nil {
			err = stream.RecvMsg(&emptypb.Empty{})
		}
		if status.Code(err) != want {
			t.Errorf("%s: got %v, want %v", method, err, want)
		}
	}
}

// wantRotatedBundleRefused takes the authority out of the trust domain's file. A connection loses the
// identity that it had.
func wantRotatedBundleRefused(t *testing.T, s *secured) {
	conn := s.connect(s.clients.Client("", nil, "spiffe://example.org/agents/7"))
	system := pb.NewSystemServiceClient(conn)
	if _, err := system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{}); err != nil {
		t.Fatal(err)
	}
	certtest.NewAuthority(t, "next", "spiffe://example.org").WriteRoots(filepath.Join(s.dir, "clients.crt"))
	_, err := system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	wantReason(t, err, codes.Unauthenticated, "UNIDENTIFIED", "signed by unknown authority")
}
