package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skillrun/skillrun/internal/ingress/budget"
)

// gRPC answers a request that it can't receive without asking a handler, and without details.
// So gRPC hardly ever gets one: the connection empties messages that are too large or have no
// room (package budget), and the codec here keeps decoding errors for the handler.

// maxFields bounds the fields of one message, including its nested messages: two bytes of input
// can become a hundred in memory. The budget counts only the bytes of input.
const maxFields = 100_000

// decoding drops the fields that a request's type does not have. A handler may keep the request for longer than the
// budget counts its bytes.
var decoding = proto.UnmarshalOptions{DiscardUnknown: true}

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

// codec is gRPC's own, which can fill an incoming.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal never returns an error for an incoming: gRPC would answer INTERNAL with it.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*rawMessage); ok { // of the next daemon
		raw.data = data.Materialize()
		return nil
	}
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if raw, ok := in.message.(*rawMessage); ok {
		raw.data = data.Materialize()
		return nil
	}
	message, ok := in.message.(proto.Message)
	if !ok {
		in.err = fmt.Errorf("a %T is no message", in.message)
		return nil
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if countFields(buf.ReadOnlyData(), message.ProtoReflect().Descriptor(), maxFields) < 0 {
		in.err = &messageError{fmt.Sprintf("it has more than %d fields", maxFields)}
	} else if err := decoding.Unmarshal(buf.ReadOnlyData(), message); err != nil {
		in.err = &messageError{err.Error()}
	}
	return nil
}

// countFields subtracts the number of a message's fields from left. A negative result means too
// many. It leaves malformed data to the decoder. The entries of a map count as messages, which
// they are on the wire.
func countFields(data []byte, desc protoreflect.MessageDescriptor, left int) int {
	for len(data) > 0 && left >= 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return left
		}
		data = data[n:]
		left--
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return left
		}
		if f := desc.Fields().ByNumber(number); f != nil && f.Message() != nil && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(data[:n])
			left = countFields(inner, f.Message(), left)
		}
		data = data[n:]
	}
	return left
}

// RecvMsg receives the next message of a stream. After an error it returns that error again:
// gRPC has received a refused message as an empty one, and would go on with the next.
func (s *guardedStream) RecvMsg(m any) error {
	if s.again {
		s.again = false
		proto.Merge(m.(proto.Message), s.first.(proto.Message))
		return nil
	}
	if s.broken == nil {
		s.broken = s.receive(m)
	}
	return s.broken
}

// receive receives one message into m. After the first message the connection counts as in use
// (ingress.Conn.Begin) until the handler returns.
func (s *guardedStream) receive(m any) error {
	in := &incoming{message: m}
	if err := s.ServerStream.RecvMsg(in); err != nil {
		// A method with one request needs it; for the others io.EOF is the end of the caller's
		// messages.
		if errors.Is(err, io.EOF) && !s.bidirectional {
			return &messageError{"there is none"}
		}
		return err
	}
	if err := budget.Of(s.ctx).Received(); err != nil {
		return err
	}
	if s.end == nil { // the first message, which the handler itself asks for
		s.end = s.conn.Begin()
	}
	if s.received++; s.received == 1 {
		s.first = m
	} else if s.count != nil {
		if err := s.count(s.ctx); err != nil {
			return err
		}
	}
	return in.err
}

// SendMsg sends a message, after which no other daemon can answer the call. The budget counts a large message
// until gRPC has written it. It may refuse only the first answer to a call that changes nothing: the caller can repeat
// such a call, and a longer stream holds at most two messages at a time.
func (s *guardedStream) SendMsg(m any) error {
	_, forwarded := m.(*rawMessage)
	must := s.answered || !s.reads || forwarded
	uncounted := budget.TinyMessage
	if s.answered { // gRPC holds up to 64 KiB of small messages for a stream, and more only with a larger one
		uncounted = budget.SmallMessage
	}
	s.answered, s.first = true, nil
	size := answerSize(m)
	if size <= uncounted {
		return s.ServerStream.SendMsg(m)
	}
	counted, err := budget.Of(s.ctx).Answer(int64(size), must)
	if err != nil {
		return err
	}
	if err := s.ServerStream.SendMsg(answer{m, counted}); err != nil {
		counted.Done()
		return err
	}
	return nil
}

// A registrar registers services with gRPC so that every method is a stream of both directions
// (docs/decisions/0014). The bytes on the wire are the same. But gRPC then receives a message
// only when the handler asks for it, and leaves the answer to an error to the handler.
type registrar struct{ *Server }

// RegisterService is what generated code calls.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	guarded := *desc
	guarded.Methods, guarded.Streams = nil, nil
	for _, m := range desc.Methods {
		r.bidirectional["/"+desc.ServiceName+"/"+m.MethodName] = false
		guarded.Streams = append(guarded.Streams, grpc.StreamDesc{
			StreamName: m.MethodName, ServerStreams: true, ClientStreams: true,
			Handler: func(srv any, ss grpc.ServerStream) error {
				// The generated handler of a unary method: it receives the request by its third
				// argument. The nil is a unary interceptor; guard has run already.
				answer, err := m.Handler(srv, ss.Context(), ss.RecvMsg, nil)
				if err != nil {
					return err
				}
				return ss.SendMsg(answer)
			},
		})
	}
	for _, s := range desc.Streams {
		r.bidirectional["/"+desc.ServiceName+"/"+s.StreamName] = s.ClientStreams
		s.ClientStreams = true
		guarded.Streams = append(guarded.Streams, s)
	}
	r.grpc.RegisterService(&guarded, impl)
}

// GetServiceInfo is what reflection asks for.
func (r registrar) GetServiceInfo() map[string]grpc.ServiceInfo { return r.grpc.GetServiceInfo() }

// unary is for a method that was registered past the registrar.
func unary(_ context.Context, _ any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	return nil, status.Errorf(codes.Unimplemented, "%s: no such method", info.FullMethod)
}
