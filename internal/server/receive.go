package server

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// gRPC answers a request that it can't receive by itself, before any handler and
// without details. One that is too large it doesn't even read, which is what bounds
// memory. One that can't be decoded is taken here, and refused as every other error.

// A messageError is a request that can't be decoded, such as one with a string that
// is not UTF-8.
type messageError struct{ reason string }

func (e *messageError) Error() string { return "the message can't be decoded: " + e.reason }

// An incoming is a message that is being received: gRPC hands it to the codec as it
// is, which leaves the error in it.
type incoming struct {
	message any
	err     error
}

// receive receives a message by what gRPC receives one with.
func receive(by func(any) error, message any) error {
	in := &incoming{message: message}
	if err := by(in); err != nil {
		return err
	}
	return in.err
}

// codec is gRPC's own, which can fill an incoming.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if err := c.CodecV2.Unmarshal(data, in.message); err != nil {
		in.err = &messageError{err.Error()}
	}
	return nil
}

// RecvMsg receives the next message of a stream.
func (s guardedStream) RecvMsg(m any) error { return receive(s.ServerStream.RecvMsg, m) }

// A registrar registers services whose unary methods refuse such messages.
type registrar struct{ *Server }

// RegisterService is what generated code calls.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	guarded := *desc
	guarded.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		method, handle := "/"+desc.ServiceName+"/"+m.MethodName, m.Handler
		m.Handler = func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handle(srv, ctx, func(v any) error {
				err := receive(decode, v)
				if errors.As(err, new(*messageError)) {
					return r.answer(ctx, &call{method: method, reference: newReference()}, err)
				}
				return err // gRPC's own
			}, interceptor)
		}
		guarded.Methods[i] = m
	}
	r.grpc.RegisterService(&guarded, impl)
}
