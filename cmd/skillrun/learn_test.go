package main

import (
	"testing"

	"gopkg.in/yaml.v3"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The text is YAML. Texts that the program chose, such as names, stay in comments.
func TestLearnedText(t *testing.T) {
	denied := &pb.ExecutionUsage{Network: &pb.NetworkUsage{Denials: []*pb.NetworkDenial{{Protocol: "dns", Name: "a\nnetwork: {}", Reason: "no"}}}}
	for _, tt := range []struct {
		outcome *pb.ExecutionOutcome
		want    string
	}{
		{&pb.ExecutionOutcome{LearnedRules: &pb.LearnedRules{}}, `# The network that this run of acme/demo needed:
network:
  allow: [] # or the list that you have; without this key it is [public]
  skills:
    "acme/demo": none
`},
		{&pb.ExecutionOutcome{LearnedRules: &pb.LearnedRules{Allow: []string{"a.example", "[2600::1]:22"}, Incomplete: true}, Usage: denied, Evidence: &pb.ExecutionEvidence{NetworkDeniedCount: 3}},
			`# The network that this run of acme/demo needed:
# INCOMPLETE: the run had more connections than can be learned from, or the network's process died.
# refused: dns a\nnetwork: {}, no
# refused: 2 more
network:
  allow: [] # or the list that you have; without this key it is [public]
  skills:
    "acme/demo":
      allow:
        - "a.example"
        - "[2600::1]:22"
`},
	} {
		got := learnedText("acme/demo", tt.outcome)
		if got != tt.want {
			t.Errorf("got\n%s\nwant\n%s", got, tt.want)
		}
		if err := yaml.Unmarshal([]byte(got), &map[string]any{}); err != nil {
			t.Errorf("not YAML: %v", err)
		}
	}
}
