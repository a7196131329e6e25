package spelling

import "testing"

func TestClosest(t *testing.T) {
	names := []string{"memory", "message_bytes", "network", "swap"}
	for word, want := range map[string]string{"memroy": "memory", "netwrok": "network", "swaps": "swap", "memory": "memory", "net": "", "": "", "bytes": ""} {
		if got := Closest(word, names); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
