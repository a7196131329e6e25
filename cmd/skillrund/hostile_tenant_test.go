package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// foreignSkill tries the calls about one skill with another tenant's token. Each is answered as for
// a skill that does not exist, with the same words; only the name differs.
func foreignSkill(t *testing.T, _ *running, _ hostileCase) {
	p := startPushing(t, "")
	digest := p.mustPush(p.acme, "s1", "A-secret")
	p.wantSays(p.acme, "s1", "A-secret")
	calls := map[string]func(skill string) error{
		"execute": func(skill string) error {
			stream, err := p.runs.Execute(p.other, script(skill, "scripts/say.sh"))
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"get": func(skill string) error {
			_, err := p.about.GetSkill(p.other, &pb.GetSkillRequest{Skill: skill})
			return err
		},
		"delete": func(skill string) error {
			_, err := p.about.DeleteSkill(p.other, &pb.DeleteSkillRequest{Skill: skill})
			return err
		},
	}
	const nobodys = "00000000-0000-0000-0000-000000000000"
	for call, ask := range calls {
		for _, version := range []string{"", "@" + digest} {
			foreign, missing := ask("s1"+version), ask(nobodys+version)
			wantReason(t, foreign, codes.NotFound, "SKILL_NOT_FOUND", "")
			if got, want := refusalWithout(foreign, "s1"), refusalWithout(missing, nobodys); got != want {
				t.Errorf("%s of a foreign skill: %s, of a missing one: %s", call, got, want)
			}
		}
	}
	if got := p.names(p.other); slices.Contains(got, "s1") || !slices.Contains(got, "calculator") {
		t.Errorf("globex sees %v", got)
	}
	page := func(who context.Context, token string) (*pb.ListSkillsResponse, error) {
		return p.about.ListSkills(who, &pb.ListSkillsRequest{PageSize: 1, PageToken: token})
	}
	first, err := page(p.acme, "")
	if err != nil || first.NextPageToken == "" {
		t.Fatalf("got %v, %v; want a page and a token", first, err)
	}
	if _, err := page(p.acme, first.NextPageToken); err != nil {
		t.Error(err)
	}
	_, err = page(p.other, first.NextPageToken)
	wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST", "page_token")
	p.wantSays(p.acme, "s1", "A-secret") // nothing was deleted
}

// refusalWithout returns a refusal's code, message and details as text, without the name that was asked for.
func refusalWithout(err error, name string) string {
	s := status.Convert(err)
	return strings.ReplaceAll(fmt.Sprint(s.Code(), ": ", s.Message(), " ", s.Details()), name, "NAME")
}

// foreignExecution tries every call about one execution with another tenant's token, while the
// execution runs and after its end. Each is answered as for an id that does not exist.
func foreignExecution(t *testing.T, _ *running, _ hostileCase) {
	s := startSecured(t, "")
	a := with(t.Context(), s.token("create", "--tenant", "acme", "--name", "a", "--role", "admin"))
	b := with(t.Context(), s.token("create", "--tenant", "globex", "--name", "b", "--role", "admin"))
	runs := executionClient{pb.NewExecutionServiceClient(s.connect(nil))}
	foreign := func(when, id string) map[string]string {
		_, err := runs.GetExecution(b, &pb.GetExecutionRequest{ExecutionId: id})
		errs := map[string]error{"get": err}
		attached, err := runs.AttachExecution(b, &pb.AttachExecutionRequest{ExecutionId: id})
		if err == nil {
			_, err = attached.Recv()
		}
		errs["attach"] = err
		_, errs["cancel"] = runs.CancelExecution(b, &pb.CancelExecutionRequest{ExecutionId: id})
		_, errs["signal"] = runs.SignalExecution(b, &pb.SignalExecutionRequest{ExecutionId: id, Signal: "SIGKILL"})
		_, errs["delete"] = runs.DeleteExecution(b, &pb.DeleteExecutionRequest{ExecutionId: id})
		_, errs["artifacts"] = runs.ListArtifacts(b, &pb.ListArtifactsRequest{ExecutionId: id})
		file, err := runs.GetArtifact(b, &pb.GetArtifactRequest{ExecutionId: id, Path: "secret"})
		if err == nil {
			_, err = file.Recv()
		}
		errs["artifact"] = err
		refusals := map[string]string{}
		for call, err := range errs {
			t.Run(when+" "+call, func(t *testing.T) { wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "execution not found") })
			refusals[call] = refusalWithout(err, id)
		}
		return refusals
	}
	stream, err := runs.ExecuteInteractive(a)
	if err != nil {
		t.Fatal(err)
	}
	start := shell("calculator", "echo A-secret | tee secret; read line; echo $line")
	if err := stream.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: start}}); err != nil {
		t.Fatal(err)
	}
	var id string
	for output := false; !output; {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		id, output = m.ExecutionId, m.GetOutput() != nil
	}
	running := foreign("running", id)
	if err := stream.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("went on\n")}}); err != nil {
		t.Fatal(err)
	}
	attached, err := runs.AttachExecution(a, &pb.AttachExecutionRequest{ExecutionId: id})
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, attached, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "A-secret\nwent on\n")
	ended := foreign("ended", id)
	missing := foreign("no such", "019a0000-0000-7000-8000-000000000000")
	if !maps.Equal(running, missing) || !maps.Equal(ended, missing) {
		t.Errorf("an execution that runs: %v\none that has ended: %v\none that nobody has: %v", running, ended, missing)
	}
	if list, err := runs.ListExecutions(b, &pb.ListExecutionsRequest{}); err != nil || len(list.Executions) > 0 {
		t.Errorf("got %v, %v; want an empty list", list, err)
	}
}

// spoofedTenant names another tenant in every place that a proxy or a client might use. The
// credential alone decides, and two credentials are refused.
func spoofedTenant(t *testing.T, _ *running, _ hostileCase) {
	s := startSecured(t, "")
	tokenA, tokenB := s.token("create", "--tenant", "acme", "--name", "a", "--role", "admin"), s.token("create", "--tenant", "globex", "--name", "b", "--role", "admin")
	a, b := with(t.Context(), tokenA), with(t.Context(), tokenB)
	runs := executionClient{pb.NewExecutionServiceClient(s.connect(nil))}
	spoofed := metadata.AppendToOutgoingContext(a, "x-tenant-id", "globex", "tenant", "globex", "tenant-id", "globex",
		"x-forwarded-client-cert", "URI=spiffe://example.org/agents/7", "x-forwarded-for", "127.0.0.1", "x-skillrun-tenant", "globex")
	stream, err := runs.Execute(spoofed, shell("calculator", "echo hello"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, stream, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	get := &pb.GetExecutionRequest{ExecutionId: r.id}
	if e, err := runs.GetExecution(a, get); err != nil || e.Principal != "token:a" {
		t.Errorf("the token's tenant: got %v, %v", e, err)
	}
	_, err = runs.GetExecution(b, get)
	wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	for name, ctx := range map[string]metadata.MD{
		"two tokens":         metadata.Pairs("authorization", "Bearer "+tokenA, "authorization", "Bearer "+tokenB),
		"one token twice":    metadata.Pairs("authorization", "Bearer "+tokenA, "authorization", "Bearer "+tokenA),
		"two tokens in one":  metadata.Pairs("authorization", "Bearer "+tokenA+", Bearer "+tokenB),
		"a token and basics": metadata.Pairs("authorization", "Bearer "+tokenA, "authorization", "Basic YTpi"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runs.ListExecutions(metadata.NewOutgoingContext(t.Context(), ctx), &pb.ListExecutionsRequest{})
			wantReason(t, err, codes.Unauthenticated, "UNIDENTIFIED", "")
		})
	}
}
