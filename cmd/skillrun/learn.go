package main

import (
	"fmt"
	"strconv"
	"strings"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// learnedText returns the network rules that a program needed, as YAML for the daemon's configuration. skill is the
// full name of the skill. Refusals are comments in the YAML, because the operator must judge them.
func learnedText(skill string, o *pb.ExecutionOutcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The network that this run of %s needed:\n", printable(skill))
	if o.GetLearnedRules().GetIncomplete() {
		b.WriteString("# INCOMPLETE: the run had more connections than can be learned from, or the network's process died.\n")
	}
	for _, d := range o.GetUsage().GetNetwork().GetDenials() {
		fmt.Fprintf(&b, "# refused: %s\n", printable(denialText(d)))
	}
	if listed := uint64(len(o.GetUsage().GetNetwork().GetDenials())); o.GetEvidence().GetNetworkDeniedCount() > listed {
		fmt.Fprintf(&b, "# refused: %d more\n", o.GetEvidence().GetNetworkDeniedCount()-listed)
	}
	// The rules of a skill close nothing for other skills: without the key allow, these have public rules.
	fmt.Fprintf(&b, "network:\n  allow: [] # or the list that you have; without this key it is [public]\n  skills:\n    %s:", strconv.Quote(skill))
	allow := o.GetLearnedRules().GetAllow()
	if len(allow) == 0 {
		b.WriteString(" none\n")
		return b.String()
	}
	b.WriteString("\n      allow:\n")
	for _, rule := range allow {
		fmt.Fprintf(&b, "        - %s\n", strconv.Quote(rule))
	}
	return b.String()
}
