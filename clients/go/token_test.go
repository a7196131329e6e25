package skillrun

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestTokenFromCommand(t *testing.T) {
	for script, want := range map[string]string{
		"echo one":               "one",
		"printf two":             "two",
		"echo; echo three; echo": "three",
		"true":                   "error: command sh: it printed nothing",
		"echo secret; exit 3":    "error: command sh: exit status 3",
		"echo a; echo b":         "error: command sh: it printed more than one line",
		"head -c 9000 /dev/zero": "error: command sh: it printed more than 8192 bytes",
		"cat":                    "error: command sh: it printed nothing", // standard input is empty
	} {
		got, err := TokenFromCommand(t.Context(), "sh", "-c", script)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	if _, err := TokenFromCommand(t.Context(), "no-such-program"); err == nil || !strings.Contains(err.Error(), "command no-such-program: ") {
		t.Errorf("got %v", err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("over"))
	if _, err := TokenFromCommand(ended, "sh", "-c", "echo x"); err == nil || err.Error() != "command sh: over" {
		t.Errorf("got %v", err)
	}
}

// webToken is an unsigned token with an expiry.
func webToken(expires int64) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{}`)) + "." + part(fmt.Appendf(nil, `{"exp":%d}`, expires)) + ".x"
}

// A command runs once, and again before its token expires or after drop.
func TestTokenCommandIsKept(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	runs, next := 0, ""
	c := newTokenCommand("none")
	c.now = func() time.Time { return now }
	c.run = func(context.Context) (string, error) {
		runs++
		if next == "" {
			return "", errors.New("locked")
		}
		return next, nil
	}
	want := func(token string, ran int) {
		t.Helper()
		if got, err := c.token(t.Context()); got != token || (err != nil) != (token == "") || runs != ran {
			t.Errorf("got %q, %v after %d runs; want %q after %d", got, err, runs, token, ran)
		}
	}
	want("", 1)
	want("", 2) // an error is not kept
	next = "opaque"
	want("opaque", 3)
	now = now.Add(1000 * time.Hour)
	want("opaque", 3)
	c.drop()
	next = webToken(now.Add(time.Hour).Unix())
	want(next, 4)
	now = now.Add(time.Hour - 2*renewBefore)
	want(next, 4)
	now = now.Add(renewBefore)
	next = webToken(now.Add(time.Hour).Unix())
	want(next, 5)
}

// A caller can stop to wait for the command that another one runs.
func TestTokenCommandWait(t *testing.T) {
	c := newTokenCommand("none")
	running, end := make(chan struct{}), make(chan struct{})
	c.run = func(context.Context) (string, error) {
		close(running)
		<-end
		return "one", nil
	}
	first := make(chan string)
	go func() {
		got, _ := c.token(context.Background())
		first <- got
	}()
	<-running
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.token(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(end)
	if got := <-first; got != "one" {
		t.Errorf("got %q", got)
	}
}

func TestExpiry(t *testing.T) {
	for token, want := range map[string]int64{
		webToken(1234567890): 1234567890, webToken(-1): 0, "opaque": 0, "a.b.c": 0, "a.!.c": 0,
		"x." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1e300}`)) + ".x": 0,
	} {
		if got := expiry(token); got.IsZero() != (want == 0) || want != 0 && got.Unix() != want {
			t.Errorf("%s: got %v, want %d", token, got, want)
		}
	}
}

// After UNAUTHENTICATED a command runs again, and the call is made again with its new token.
func TestTokenCommandIsRepeated(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	calls := 0
	f := &fake{get: func(r *pb.GetExecutionRequest) (*pb.Execution, error) {
		calls++
		st := status.New(codes.Unauthenticated, "the token has expired")
		if calls > 1 && r.GetExecutionId() == "e1" {
			return &pb.Execution{ExecutionId: "e1"}, nil
		}
		st, _ = st.WithDetails(&errdetails.ErrorInfo{Domain: Domain, Reason: "UNIDENTIFIED"})
		return nil, st.Err()
	}}
	f.dial(t) // serves
	dial := func(script string) *Client {
		c, err := Dial(f.address, WithTokenCommand("sh", "-c", script))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial("printf x >>" + count + "; wc -c <" + count)
	if _, err := c.Executions().GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: "e1"}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(count); err != nil || string(got) != "xx" || calls != 2 {
		t.Errorf("got %q, %v after %d calls; want two runs and two calls", got, err, calls)
	}
	// No more than twice.
	if _, err := c.Executions().GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: "e2"}); Reason(err) != "UNIDENTIFIED" || calls != 4 {
		t.Errorf("got %v after %d calls", err, calls)
	}
	// A command that fails is not run again, and no call is made.
	_, err := dial("printf x >>"+count+"; exit 1").Executions().GetExecution(t.Context(), &pb.GetExecutionRequest{})
	if err == nil || !strings.Contains(err.Error(), "command sh: exit status 1") || calls != 4 {
		t.Errorf("got %v after %d calls", err, calls)
	}
	if got, _ := os.ReadFile(count); string(got) != "xxxx" {
		t.Errorf("got %q runs, want 4", got)
	}
}

func TestTokenFunc(t *testing.T) {
	f := &fake{get: func(*pb.GetExecutionRequest) (*pb.Execution, error) { return &pb.Execution{}, nil }}
	f.dial(t) // serves
	called := 0
	c, err := Dial(f.address, WithTokenFunc(func(context.Context) (string, error) { called++; return "x", nil }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if _, err := c.Executions().GetExecution(t.Context(), &pb.GetExecutionRequest{}); err != nil {
			t.Error(err)
		}
	}
	if called != 2 {
		t.Errorf("called %d times, want 2", called)
	}
}
