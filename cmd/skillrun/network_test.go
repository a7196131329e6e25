package main

import (
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A connection that its destination did not accept is shown with the reason, and without bytes.
func TestFailedConnectionIsShown(t *testing.T) {
	var shown table
	addNetwork(&shown, &pb.ExecutionOutcome{Usage: &pb.ExecutionUsage{Network: &pb.NetworkUsage{Connections: []*pb.NetworkConnection{
		{Protocol: "tcp", Address: "20.1.0.1", Port: 443, Name: "a.example", Error: "connection refused"},
		{Protocol: "tcp", Address: "20.1.0.1", Port: 80, SentBytes: 5},
	}}}})
	var text strings.Builder
	if err := shown.write(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tcp 20.1.0.1:443 (a.example) failed: connection refused\n", "tcp 20.1.0.1:80, 5 B sent"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}
