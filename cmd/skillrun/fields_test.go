package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// userRequests are the requests that a command line makes.
var userRequests = []protoreflect.ProtoMessage{
	&pb.ExecuteRequest{}, &pb.AttachExecutionRequest{}, &pb.ListExecutionsRequest{}, &pb.GetExecutionRequest{}, &pb.CancelExecutionRequest{}, &pb.SignalExecutionRequest{}, &pb.DeleteExecutionRequest{},
	&pb.ListArtifactsRequest{}, &pb.GetArtifactRequest{}, &pb.ListSkillsRequest{}, &pb.GetSkillRequest{}, &pb.ActivateSkillRequest{},
	&pb.CheckCommandRequest{}, &pb.ValidateSkillRequest{}, &pb.PrepareSkillRequest{}, &pb.PushSkillRequest{}, &pb.PutSessionFileRequest{}, &pb.DeleteSkillRequest{}, &pb.ListSkillVersionsRequest{}, &pb.CallToolRequest{},
	&pb.CreateSessionRequest{}, &pb.ListSessionsRequest{}, &pb.ListSessionFilesRequest{}, &pb.ListSessionVersionsRequest{}, &pb.UpdateSessionRequest{}, &pb.DeleteSessionRequest{},
}

// notOnTheCommandLine are the fields without a flag or argument.
var notOnTheCommandLine = []string{
	"raw_path", "page_size", "page_token", "include_hidden", "created_after", "created_before", "states", "offset_bytes", "path", "skill_md", "folder", "rebuild",
	"name", "header.source", "header.raw_path", "header.sha256", "header.executable", "header.offset_bytes", "entry.executable",
	"labels.labels", // SessionService checks labels under the name labels
}

// notInARequest are the flags whose value never reaches the daemon, and flags that can't
// be wrong.
var notInARequest = []string{
	"address", "json", "verbose", "help", "version", "quiet", "wait", "artifacts", "detach", "interactive", "all", "limit", "strict", "rebuild",
	"mcp-address", "command", "base-dir", "skill", "log", "jobs", "checks-only",
	"tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "token-file", "context", "token-variable", "update", "lock", "index-token-file", "yes", "no-labels", "max-size",
}

// TestFieldsAreComplete holds the table, the contract and the flags together: a field of
// a request has a word, a flag has a field.
func TestFieldsAreComplete(t *testing.T) {
	var paths []string
	for _, m := range userRequests {
		paths = append(paths, pathsOf("", m.ProtoReflect().Descriptor())...)
	}
	for _, path := range paths {
		if _, ok := fieldOf(path); !ok && !slices.Contains(notOnTheCommandLine, path) {
			t.Errorf("%s is a field of a request, and fields says nothing of it", path)
		}
	}
	for _, f := range fields {
		if !slices.Contains(paths, f.path) && f.path != "source" && f.path != "entry" { // a oneof, and a message
			t.Errorf("%s is in fields, and no request has it", f.path)
		}
	}
	for _, path := range notOnTheCommandLine {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is excepted, and no request has it", path)
		}
	}
	for _, cmd := range (&app{}).root().Commands() {
		if cmd.Name() == "bench" { // it starts a daemon itself
			continue
		}
		eachFlag(cmd, func(flag *pflag.Flag) {
			known := slices.ContainsFunc(fields, func(f field) bool { return strings.Contains(f.word+" ", "--"+flag.Name+" ") })
			if !known && !slices.Contains(notInARequest, flag.Name) {
				t.Errorf("%s --%s: fields does not name it", cmd.Name(), flag.Name)
			}
		})
	}
}

// TestFieldsNameFlags: a word that looks like a flag is one.
func TestFieldsNameFlags(t *testing.T) {
	flags := map[string]bool{}
	for _, cmd := range (&app{}).root().Commands() {
		eachFlag(cmd, func(flag *pflag.Flag) { flags["--"+flag.Name] = true })
	}
	for _, f := range fields {
		for word := range strings.FieldsSeq(f.word) {
			if strings.HasPrefix(word, "--") && !flags[word] {
				t.Errorf("%s: no command has the flag %s", f.path, word)
			}
		}
	}
}

// TestHelpHasNoTypes: the help names the value of each flag with a word for users, not with a type of Go.
func TestHelpHasNoTypes(t *testing.T) {
	for _, cmd := range (&app{}).root().Commands() {
		eachFlag(cmd, func(flag *pflag.Flag) {
			switch name, _ := pflag.UnquoteUsage(flag); name {
			case "uint32", "uint64", "int", "string", "strings", "stringArray", "duration":
				t.Errorf("%s: the value of --%s is a %s", cmd.CommandPath(), flag.Name, name)
			}
		})
	}
}

// TestFieldsNameTheirKeys: every limit names the key of the configuration that is its
// ceiling, and the configuration has that key.
func TestFieldsNameTheirKeys(t *testing.T) {
	data, err := os.ReadFile("../../deploy/skillrund.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Limits struct{ Max map[string]any }
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if strings.HasPrefix(f.path, "limits.") != (f.config != "") {
			t.Errorf("%s: its key in the configuration is %q", f.path, f.config)
		}
		if key, ok := strings.CutPrefix(f.config, "limits.max."); f.config != "" && (!ok || config.Limits.Max[key] == nil) {
			t.Errorf("%s: deploy/skillrund.yaml does not have %s", f.path, f.config)
		}
	}
}

func TestAdviceInTheUsersWords(t *testing.T) {
	for _, tt := range []struct{ advice, want string }{
		{"Raise limits.memory_bytes or limits.workspace_bytes.", "Raise --memory or --workspace."},
		{"Try again with a longer queue_timeout.", "Try again with a longer --queue-timeout."},
		{"Set an environment variable for the command.", "Set an environment variable for the command."},
		{"Some files that it left in /workspace were not kept; artifacts_refused lists them with the reasons.", "Some files that it left in /workspace were not kept; 'skillrun show' lists them with the reasons."},
	} {
		if got := userWords(tt.advice); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestUserUnits(t *testing.T) {
	for _, tt := range []struct {
		unit        func(string) string
		value, want string
	}{
		{userBytes, "106300440576 bytes", "99 GiB"},
		{userBytes, "1500 bytes", "1500 bytes"},
		{userBytes, "9223372036854775807 bytes", "9223372036854775807 bytes"},
		{userBytes, "many", "many"},
		{userTime, "10m0s", "10m"},
		{userTime, "1h0m0s", "1h"},
		{userTime, "30s", "30s"},
		{userTime, "10m10s", "10m10s"},
		{userTime, "soon", "soon"},
		{userCPUs, "1500", "1.5"},
		{userCPUs, "x", "x"},
	} {
		if got := tt.unit(tt.value); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.value, got, tt.want)
		}
	}
}

// pathsOf lists the fields of a message by their names in errors: a field of Code or Limits
// has its parent's name in front; a list or a map has one name.
func pathsOf(prefix string, m protoreflect.MessageDescriptor) (paths []string) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		path := prefix + string(f.Name())
		if nested := f.Message(); nested != nil && nested.ParentFile() == m.ParentFile() && !f.IsList() && !f.IsMap() {
			paths = append(paths, pathsOf(path+".", nested)...)
			continue
		}
		if nested := f.Message(); nested != nil && nested.Name() == "ExecutionLimits" { // of another file
			paths = append(paths, pathsOf(path+".", nested)...)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

// eachFlag calls f for the flags of a command, its parents' and its children's.
func eachFlag(cmd *cobra.Command, f func(*pflag.Flag)) {
	cmd.Flags().VisitAll(f)
	cmd.InheritedFlags().VisitAll(f)
	for _, child := range cmd.Commands() {
		eachFlag(child, f)
	}
}
