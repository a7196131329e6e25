package skillrun

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const (
	// maxTokenBytes bounds the output of a command that prints a token. The daemon refuses longer
	// tokens.
	maxTokenBytes = 8 << 10

	// tokenCommandTimeout bounds a run of such a command. It may ask a person to log in.
	tokenCommandTimeout = 2 * time.Minute

	// renewBefore is how long before its end a token is no longer used: the call takes time to reach the
	// daemon, and the daemon's clock may be fast.
	renewBefore = 30 * time.Second
)

// WithTokenFunc is like [WithToken]. It calls source for each call, from several goroutines at once. An
// error of source is the error of the call.
func WithTokenFunc(source func(context.Context) (string, error)) grpc.DialOption {
	return tokenOption{source: source}
}

// WithTokenCommand is like [WithToken]. The token is the standard output of a program, which is run
// without a shell, gets no standard input, and shares standard error. The program runs with the first
// call, and again after the daemon has answered UNAUTHENTICATED or, if the token is a JSON Web Token,
// shortly before it expires. A unary call that was answered so is made again, once, with the new token.
func WithTokenCommand(name string, args ...string) grpc.DialOption {
	c := newTokenCommand(name, args...)
	return tokenOption{source: c.token, more: []grpc.DialOption{grpc.WithStatsHandler(c), grpc.WithChainUnaryInterceptor(c.again)}}
}

// TokenFromCommand runs a program once and returns its standard output as [WithTokenCommand] takes it.
func TokenFromCommand(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tokenCommandTimeout, fmt.Errorf("it ran for more than %v", tokenCommandTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	out := &shortBuffer{}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	// A child that survives the program may hold the program's output open.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	token := strings.TrimSpace(out.kept.String())
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case out.full:
		err = fmt.Errorf("it printed more than %d bytes", maxTokenBytes)
	case err == nil && token == "":
		err = errors.New("it printed nothing")
	case err == nil && strings.ContainsAny(token, "\r\n"):
		err = errors.New("it printed more than one line")
	}
	if err != nil {
		// Without the arguments, which may be secret.
		return "", fmt.Errorf("command %s: %w", name, err)
	}
	return token, nil
}

// shortBuffer keeps the first bytes of an output, and takes the others without keeping them.
type shortBuffer struct {
	kept bytes.Buffer
	full bool
}

func (b *shortBuffer) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) > maxTokenBytes {
		b.full = true
		return len(p), nil
	}
	return b.kept.Write(p)
}

// tokenCommand keeps the token of a command while it is of use.
type tokenCommand struct {
	run func(context.Context) (string, error)
	now func() time.Time

	// turn has room for the one goroutine that may use the fields below. A caller can stop to wait for
	// it when its context ends, which a mutex does not allow.
	turn    chan struct{}
	text    string
	expires time.Time // zero: it does not say
}

func newTokenCommand(name string, args ...string) *tokenCommand {
	return &tokenCommand{
		run:  func(ctx context.Context) (string, error) { return TokenFromCommand(ctx, name, args...) },
		now:  time.Now,
		turn: make(chan struct{}, 1),
	}
}

// token returns the kept token or runs the command. Other callers wait for the one that runs it.
func (c *tokenCommand) token(ctx context.Context) (string, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-c.turn }()
	if c.text != "" && (c.expires.IsZero() || c.now().Before(c.expires.Add(-renewBefore))) {
		return c.text, nil
	}
	text, err := c.run(ctx)
	if err != nil {
		return "", err
	}
	c.text, c.expires = text, expiry(text)
	return text, nil
}

// drop forgets a token that the daemon refused.
func (c *tokenCommand) drop() {
	c.turn <- struct{}{}
	c.text = ""
	<-c.turn
}

// again makes a unary call a second time if the first was answered UNAUTHENTICATED. HandleRPC has then
// dropped the token.
func (c *tokenCommand) again(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, opts...)
	if status.Code(err) != codes.Unauthenticated || Reason(err) == "" {
		return err // an error without a reason is of this side: the command failed
	}
	return invoke(ctx, method, request, reply, conn, opts...)
}

// HandleRPC drops the token of a call that was answered UNAUTHENTICATED.
func (c *tokenCommand) HandleRPC(_ context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok && status.Code(end.Error) == codes.Unauthenticated {
		c.drop()
	}
}

func (c *tokenCommand) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *tokenCommand) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *tokenCommand) HandleConn(context.Context, stats.ConnStats)                       {}

// expiry returns the claim exp of a JSON Web Token, or zero. The token is not verified: a wrong time only
// makes the command run too often or too late.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct{ Exp float64 }
	if json.Unmarshal(data, &claims) != nil || claims.Exp <= 0 || claims.Exp > math.MaxInt32*1000. {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0)
}
