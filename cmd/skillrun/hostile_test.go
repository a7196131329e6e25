package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// escapes is a text of a hostile daemon. A terminal would set its title, change its colours (ESC, and
// its form of one character), write backwards and begin a new line.
const escapes = "a\x1b]0;title\x07\x1b[31m\u009b32m\u202eb\r\x7f\u2028c"

// hostile fills every field of a message, so that each text is escapes.
func hostile[M proto.Message](m M) M {
	fill(m.ProtoReflect(), 0)
	return m
}

// fillDepth bounds messages that contain themselves.
const fillDepth = 6

func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch one := field.ContainingOneof(); {
		case field.Message() != nil && (depth == fillDepth || field.Message().FullName() == "google.protobuf.Timestamp"), one != nil && !one.IsSynthetic() && m.WhichOneof(one) != nil:
		case field.IsMap():
			value := m.NewField(field)
			if field.MapValue().Kind() == protoreflect.StringKind && field.MapKey().Kind() == protoreflect.StringKind {
				value.Map().Set(protoreflect.ValueOfString(escapes).MapKey(), protoreflect.ValueOfString(escapes))
			}
			m.Set(field, value)
		case field.IsList():
			list := m.Mutable(field).List()
			if field.Message() != nil {
				fill(list.AppendMutable().Message(), depth+1)
			} else {
				list.Append(scalar(field))
			}
		case field.Message() != nil:
			fill(m.Mutable(field).Message(), depth+1)
		default:
			m.Set(field, scalar(field))
		}
	}
}

func scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(escapes)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(escapes + "\xff"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(99) // of a later version
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1<<32 - 1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1<<64 - 1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1e300)
	}
	return field.Default()
}

// hostileFake answers every call with escapes.
func hostileFake() *fake {
	outcome := hostile(&pb.ExecutionOutcome{})
	outcome.Stdout, outcome.Stderr = hostile(&pb.OutputTruncation{}), hostile(&pb.OutputTruncation{})
	events := func(after uint64, s eventtest.Server) error {
		r := newRecord()
		r.events = nil
		for _, e := range []*pb.ExecutionEvent{
			{Event: &pb.ExecutionEvent_Header{Header: hostile(&pb.ExecutionHeader{})}},
			{Event: &pb.ExecutionEvent_Started{Started: hostile(&pb.ExecutionStarted{})}},
			{Event: &pb.ExecutionEvent_Outcome{Outcome: outcome}},
		} {
			r.add(e)
			e.ExecutionId = escapes
		}
		return r.send(s, after, 0)
	}
	f := &fake{
		execute:     func(_ *pb.ExecuteRequest, s eventtest.Server) error { return events(0, s) },
		interactive: func(s eventtest.Interactive) error { return events(0, s.Server) },
		attach:      func(a *pb.AttachExecutionRequest, s eventtest.Server) error { return events(a.GetAfterSequence(), s) },
		prepare: func(_ *pb.PrepareSkillRequest, s grpc.ServerStreamingServer[pb.PrepareSkillResponse]) error {
			return s.Send(&pb.PrepareSkillResponse{Event: &pb.PrepareSkillResponse_Environment{Environment: hostile(&pb.SkillEnvironment{})}})
		},
	}
	f.answers = map[string]any{
		"GetExecution": func(*pb.GetExecutionRequest) (*pb.Execution, error) {
			m := hostile(&pb.Execution{})
			m.Outcome.ArtifactCount = uint64(len(hostile(&pb.ListArtifactsResponse{}).Artifacts)) // else the list is an error
			return m, nil
		},
		"CancelExecution": func(*pb.CancelExecutionRequest) (*pb.Execution, error) { return hostile(&pb.Execution{}), nil },
		"SignalExecution": func(*pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
			return hostile(&pb.SignalExecutionResponse{}), nil
		},
		"ListExecutions": func(*pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
			m := hostile(&pb.ListExecutionsResponse{})
			m.NextPageToken = ""
			return m, nil
		},
		"ListArtifacts": func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
			m := hostile(&pb.ListArtifactsResponse{})
			m.NextPageToken = ""
			return m, nil
		},
		"ListSkills": func(*pb.ListSkillsRequest) (*pb.ListSkillsResponse, error) {
			m := hostile(&pb.ListSkillsResponse{})
			m.NextPageToken = ""
			return m, nil
		},
		"GetSkill": func(*pb.GetSkillRequest) (*pb.Skill, error) { return hostile(&pb.Skill{}), nil },
		"ActivateSkill": func(*pb.ActivateSkillRequest) (*pb.ActivateSkillResponse, error) {
			return hostile(&pb.ActivateSkillResponse{}), nil
		},
		"CheckCommand": func(*pb.CheckCommandRequest) (*pb.CheckCommandResponse, error) {
			return hostile(&pb.CheckCommandResponse{}), nil
		},
		"ValidateSkill": func(*pb.ValidateSkillRequest) (*pb.ValidateSkillResponse, error) {
			return hostile(&pb.ValidateSkillResponse{}), nil
		},
		"GetCapabilities": func(*pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
			return hostile(&pb.GetCapabilitiesResponse{}), nil
		},
	}
	return f
}

var hostileCalls = [][]string{
	{"ps", "--all"}, {"show", "e1"}, {"cancel", "e1"}, {"signal", "e1", "TERM"}, {"artifacts", "e1"}, {"artifacts", "-o", "FOLDER", "e1"},
	{"skills"}, {"skills", "demo"}, {"validate", "demo"}, {"check", "demo", "--command", "ls"}, {"doctor"}, {"version"}, {"prepare", "demo"},
	{"run", "-v", "demo", "x.py"}, {"run", "-o", "FOLDER", "demo", "x.py"}, {"run", "--detach", "demo", "x.py"}, {"attach", "-v", "e1"},
	{"bench", "--from", "nowhere"},
}

// silentCalls print no text of an answer.
var silentCalls = []string{"signal", "cancel", "bench"}

// No text of a daemon controls the terminal of a user, neither in an answer nor in an error, whatever
// command shows the text. (The output of a program is passed on unchanged.)
func TestTextsOfADaemonAreHarmless(t *testing.T) {
	info := &errdetails.ErrorInfo{Domain: skillrun.Domain, Reason: "IDEMPOTENCY_KEY_REUSED", Metadata: map[string]string{"executionId": "x" + escapes}}
	for name, f := range map[string]*fake{
		"answers":      hostileFake(),
		"unknown call": refusingFake(codes.Unimplemented),
		"no details":   refusingFake(codes.Unauthenticated),
		"details":      refusingFake(codes.NotFound, hostile(info)),
		"reason":       refusingFake(codes.AlreadyExists, info),
		"limit": refusingFake(codes.InvalidArgument, &errdetails.ErrorInfo{Domain: skillrun.Domain, Reason: "LIMIT_TOO_LARGE", Metadata: map[string]string{
			"asked": escapes, "ceiling": escapes, "setBy": escapes}}, hostile(&errdetails.BadRequest{}), hostile(&errdetails.RetryInfo{})),
	} {
		for _, call := range hostileCalls {
			for _, flags := range [][]string{nil, {"--json"}} {
				args := slices.Concat(flags, call)
				for i, arg := range args {
					if arg == "FOLDER" {
						args[i] = t.TempDir()
					}
				}
				got := f.client(t, strings.NewReader(""), args...)
				shows := strings.Contains(got.stdout+got.stderr, "]0;title")
				if name == "answers" && !shows && !slices.Contains(silentCalls, call[0]) {
					t.Errorf("%v: got %q, %q, want the daemon's text", args, got.stdout, got.stderr)
				}
				for _, r := range got.stdout + got.stderr {
					if r != '\n' && !unicode.IsPrint(r) {
						t.Errorf("%s, %v: prints %q", name, args, r)
						break
					}
				}
			}
		}
	}
}

// refusingFake answers every call with an error whose texts are escapes.
func refusingFake(code codes.Code, details ...protoadapt.MessageV1) *fake {
	st := status.New(code, escapes)
	if len(details) > 0 {
		p := st.Proto()
		for _, d := range details {
			packed, err := anypb.New(protoadapt.MessageV2Of(d))
			if err != nil {
				panic(err) // escapes are UTF-8
			}
			p.Details = append(p.Details, packed)
		}
		p.Details = append(p.Details, &anypb.Any{TypeUrl: escapes, Value: []byte(escapes)})
		st = status.FromProto(p)
	}
	err := st.Err()
	return &fake{
		refuse:      err,
		execute:     func(*pb.ExecuteRequest, eventtest.Server) error { return err },
		interactive: func(eventtest.Interactive) error { return err },
		attach:      func(*pb.AttachExecutionRequest, eventtest.Server) error { return err },
		prepare:     func(*pb.PrepareSkillRequest, grpc.ServerStreamingServer[pb.PrepareSkillResponse]) error { return err },
	}
}

// A list of empty pages without a last one ends.
func TestListsWithoutEnd(t *testing.T) {
	f := &fake{answers: map[string]any{
		"ListExecutions": func(*pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
			return &pb.ListExecutionsResponse{NextPageToken: "more"}, nil
		},
		"ListSkills": func(*pb.ListSkillsRequest) (*pb.ListSkillsResponse, error) {
			return &pb.ListSkillsResponse{NextPageToken: "more"}, nil
		},
		"GetExecution": counted(1),
		"ListArtifacts": func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
			return &pb.ListArtifactsResponse{NextPageToken: "more"}, nil
		},
	}}
	for _, args := range [][]string{{"ps"}, {"ps", "--all", "-n", "0"}, {"skills"}, {"artifacts", "e1"}} {
		if got := f.client(t, nil, args...); got.code != codeFailed || !strings.Contains(got.stderr, "page without entries") {
			t.Errorf("%v: got %+v, want %d", args, got, codeFailed)
		}
	}
}

// A list of artifacts that repeats itself does not fill the disk: no more are fetched than the
// outcome has.
func TestArtifactsWithoutEnd(t *testing.T) {
	f := newRecord().exit(0).fake().withArtifacts(map[string]string{"a": "data", "b": "data"})
	list := f.answers["ListArtifacts"].(func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error))
	f.answers["ListArtifacts"] = func(r *pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		page, err := list(r)
		page.NextPageToken = "again"
		return page, err
	}
	fetch, fetched := f.artifact, 0
	f.artifact = func(r *pb.GetArtifactRequest, s artifactServer) error {
		if fetched++; fetched > 2 {
			t.Errorf("artifact %d of 2 is fetched", fetched)
			return errors.New("enough")
		}
		return fetch(r, s)
	}
	for _, args := range [][]string{{"artifacts", "-o", t.TempDir(), "e1"}, {"artifacts", "e1"}, {"run", "-o", t.TempDir(), "demo", "x.py"}} {
		fetched = 0
		if got := f.client(t, nil, args...); got.code != codeFailed || !strings.Contains(got.stderr, "more artifacts than the outcome has") {
			t.Errorf("%v: got %+v, want %d", args, got, codeFailed)
		}
	}
}
