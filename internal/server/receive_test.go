package server

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// raw is an encoded message.
type raw []byte

// rawCodec sends raw messages unchanged.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)   { return v.(raw), nil }
func (rawCodec) Unmarshal(_ []byte, _ any) error { return nil }
func (rawCodec) Name() string                    { return "proto" }

// What can't be decoded is refused with the details that every error has, in calls of
// every kind.
func TestMessagesThatCantBeDecoded(t *testing.T) {
	d := startDaemon(t, nil)
	const (
		get     = pb.ExecutionService_GetExecution_FullMethodName
		execute = pb.ExecutionService_Execute_FullMethodName
		tool    = pb.ToolService_ExecuteScript_FullMethodName
		both    = pb.ExecutionService_ExecuteInteractive_FullMethodName
	)
	noText := raw("\x0a\x02\xff\xfe") // field 1, a string of two bytes
	want := refusal{codes.InvalidArgument, "MALFORMED_MESSAGE", "request"}
	for _, tt := range []struct {
		name, method string
		message      raw
		text         string
	}{
		{"no UTF-8, unary", get, noText, "invalid UTF-8"},
		{"no UTF-8, of a contract", tool, noText, "invalid UTF-8"},
		{"no UTF-8, streamed answer", execute, noText, "invalid UTF-8"},
		{"no UTF-8, both streamed", both, raw("\x0a\x04\x0a\x02\xff\xfe"), "invalid UTF-8"},
		{"no message", get, raw("\xff"), "can't be decoded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream, err := d.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, tt.method, grpc.ForceCodec(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.SendMsg(tt.message); err != nil {
				t.Fatal(err)
			}
			stream.CloseSend()
			st := wantRefusal(t, stream.RecvMsg(new(raw)), want)
			if !strings.Contains(st.Message(), tt.text) {
				t.Errorf("got %q, want %q", st.Message(), tt.text)
			}
		})
	}
	wantExit(t, d.execute(script("scripts/hello.sh")), 3)
}

// A request has no bytes of fields that its type does not have: a handler may keep it while the budget no longer
// counts it.
func TestUnknownFieldsAreDropped(t *testing.T) {
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("unknown"))
	sent := pushedLink("link", "target")
	sent.ProtoReflect().SetUnknown(unknown)
	sent.GetEntry().ProtoReflect().SetUnknown(unknown)
	data, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	got := new(pb.PushSkillRequest)
	in := &incoming{message: got}
	if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, in); err != nil || in.err != nil {
		t.Fatal(err, in.err)
	}
	if want := pushedLink("link", "target"); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
