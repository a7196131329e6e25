package permission

import (
	"errors"
	"testing"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
)

func TestLearnMistakes(t *testing.T) {
	n := Network{Rules: parsed(t, "public")}
	for list, request := range map[string]policy.Config{
		"learn": {Learn: true, Allow: []string{"none"}},
		"deny":  {Learn: true, Deny: []string{"*"}},
	} {
		_, err := networkFor(t, n, true, &request)
		if bad, ok := errors.AsType[*NetworkRequestError](err); !ok || bad.List != list {
			t.Errorf("%s: got %v", list, err)
		}
	}
}

// Open rules give an execution that learns no credential that its own rules would not give it.
func TestLearnGivesNoCredentials(t *testing.T) {
	n := Network{Rules: parsed(t, "a.example"), Credentials: []credential.Binding{
		{Name: "a", Domain: "a.example"}, {Name: "b", Domain: "b.example"}, {Name: "below", Domain: "*.b.example"}, {Name: "port", Domain: "a.example:8443"},
	}}
	g, err := Policy{Network: n}.Check(who, withTools(), Source{Kind: Code, Code: "1"}, &policy.Config{Learn: true})
	if err != nil || !g.Learns() || len(g.Credentials()) != 1 || g.Credentials()[0].Name != "a" {
		t.Errorf("got %+v, %v", g.Credentials(), err)
	}
}
