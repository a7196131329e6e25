package docs

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	contractReason   = regexp.MustCompile(`^ERROR_REASON_([A-Z_]+) = [1-9]`)
	documentedReason = regexp.MustCompile("^\\| `([A-Z_]+)` \\| ([A-Z_, ]+) \\|")
)

// errors.md has each reason of error.proto once, with the codes in the comment there.
func TestReasonsAreDocumented(t *testing.T) {
	want, comment := map[string]string{}, ""
	for line := range strings.SplitSeq(read(t, "../proto/skillrun/v1/error.proto"), "\n") {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "//"); ok {
			comment += text
			continue
		}
		if m := contractReason.FindStringSubmatch(line); m != nil {
			want[m[1]] = codesIn(comment)
		}
		comment = ""
	}
	got := map[string]string{}
	for line := range strings.SplitSeq(read(t, "errors.md"), "\n") {
		if m := documentedReason.FindStringSubmatch(line); m != nil {
			if got[m[1]] != "" {
				t.Errorf("%s has two rows", m[1])
			}
			got[m[1]] = codesIn(m[2])
		}
	}
	if len(want) < 80 {
		t.Fatalf("%d reasons; error.proto was not read", len(want))
	}
	for _, reason := range slices.Sorted(maps.Keys(want)) {
		if got[reason] != want[reason] {
			t.Errorf("%s: errors.md has the codes %q, error.proto has %q", reason, got[reason], want[reason])
		}
		delete(got, reason)
	}
	for reason := range got {
		t.Errorf("%s is not in error.proto", reason)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var codes = regexp.MustCompile(`\b(ALREADY_EXISTS|DATA_LOSS|DEADLINE_EXCEEDED|FAILED_PRECONDITION|INTERNAL|INVALID_ARGUMENT|` +
	`NOT_FOUND|OUT_OF_RANGE|PERMISSION_DENIED|RESOURCE_EXHAUSTED|UNAUTHENTICATED|UNAVAILABLE|UNIMPLEMENTED)\b`)

// codesIn returns the codes of gRPC that a text names, each once.
func codesIn(text string) string {
	found := codes.FindAllString(text, -1)
	slices.Sort(found)
	return strings.Join(slices.Compact(found), ", ")
}
