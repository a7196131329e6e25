package main

import (
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A connection that its destination did not accept is shown with the reason, and without bytes.
func TestFailedConnectionIsShown(t *testing.T) {
	var shown table
	addNetwork(&shown, &pb.ExecutionOutcome{Usage: &pb.ExecutionUsage{Network: &pb.NetworkUsage{Incomplete: true, Connections: []*pb.NetworkConnection{
		{Protocol: "tcp", Address: "20.1.0.1", Port: 443, Name: "a.example", Error: "connection refused"},
		{Protocol: "tcp", Address: "20.1.0.1", Port: 80, SentBytes: 5},
	}}}})
	var text strings.Builder
	if err := shown.write(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 connections, 0 B sent, 0 B received; incomplete: the network's process died\n", "tcp 20.1.0.1:443 (a.example) failed: connection refused\n", "tcp 20.1.0.1:80, 5 B sent"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

// A refusal is shown with the kind of the address, the deny rule, or the reason.
func TestDenialText(t *testing.T) {
	for _, tt := range []struct {
		d    *pb.NetworkDenial
		want string
	}{
		{&pb.NetworkDenial{Protocol: "tcp", Address: "169.254.169.254", Port: 80, Rule: "link-local", Reason: "169.254.169.254 is a link-local address", MissingRule: "169.254.169.254:80"},
			`tcp 169.254.169.254:80, link-local; the rule "169.254.169.254:80" would allow it`},
		{&pb.NetworkDenial{Protocol: "dns", Name: "a.example", Rule: "*.example", Reason: `the rule "*.example" denies a.example`}, `dns a.example, the rule "*.example" denies a.example`},
		{&pb.NetworkDenial{Protocol: "icmp", Address: "20.1.0.1", Reason: "only TCP and UDP are carried"}, "icmp 20.1.0.1, only TCP and UDP are carried"},
	} {
		if got := denialText(tt.d); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
