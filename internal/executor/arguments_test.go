package executor

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// python prints text as the published contract does. It fails the test if there
// is no Python, which every machine that builds skillrun has.
func python(t *testing.T, text string) string {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "-c", "import json,sys; sys.stdout.buffer.write(json.dumps(json.loads(sys.stdin.buffer.read()), ensure_ascii=False).encode())")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python on %q: %v", text, err)
	}
	return string(out)
}

func TestEncodeArgumentsPrintsAsPythonDoes(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"a":1}`, ` { "a" : [ 1 , 2 ] } `, `{"b":1,"a":2}`, `{"a":1,"b":2,"a":3}`,
		`{"s":"grüße 世界 🎉"}`, `{"s":"\u00e9\ud83c\udf89"}`, `{"s":"\"\\\/\b\f\n\r\t\u0001\u001f\u007f\u2028"}`, `{"<&>":"<&>"}`,
		`{"n":0,"m":-0,"k":-0.0,"x":1.0,"y":1e5,"z":1E+2}`, `{"big":123456789012345678901234567890}`,
		`{"f":[0.1,1e-5,0.0001,1e15,1e16,123456789012345680.0,1.7976931348623157e308,5e-324,3.14,100.5,-2.5e-10,1e22,1e23]}`,
		`{"t":true,"f":false,"n":null,"e":[],"o":{},"deep":{"a":[{"b":[[]]}]}}`,
		`{"":""}`, `{"a":"\u0000"}`,
	} {
		got, err := EncodeArguments(text)
		if err != nil {
			t.Errorf("EncodeArguments(%s): %v", text, err)
			continue
		}
		if want := python(t, text); string(got) != want {
			t.Errorf("EncodeArguments(%s)\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestEncodeArgumentsRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", ``, "Cannot serialize arguments to JSON: the JSON text ends too early"},
		{"an array", `[1]`, "Cannot serialize arguments to JSON: the arguments are not a JSON object"},
		{"a string", `"x"`, "not a JSON object"},
		{"cut short", `{"a":`, "ends too early"},
		{"two objects", `{}{}`, "the text goes on after the object"},
		{"not UTF-8", "{\"a\":\"\xff\"}", "not valid UTF-8"},
		{"NaN", `{"a":NaN}`, "Cannot serialize arguments to JSON: invalid character"},
		{"half a surrogate pair", `{"a":"\ud800"}`, "half of a surrogate pair"},
		{"a low half first", `{"a":"\udc00\ud800"}`, "half of a surrogate pair"},
		{"a half before text", `{"a":"\ud800x"}`, "half of a surrogate pair"},
		{"a half before another escape", `{"a":"\ud800\n"}`, "half of a surrogate pair"},
		{"a huge float", `{"a":1e999}`, "out of the range of a float"},
		{"a long whole number", `{"a":` + strings.Repeat("9", 4301) + `}`, "more than 4300 digits"},
		{"deep", strings.Repeat(`{"a":`, 600) + `1` + strings.Repeat(`}`, 600), "nested deeper than 500"},
		{"deep in arrays", `{"a":` + strings.Repeat(`[`, 600) + strings.Repeat(`]`, 600) + `}`, "nested deeper than 500"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := EncodeArguments(tt.text)
			var bad *ArgumentError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an ArgumentError with %q", err, tt.want)
			}
		})
	}
}

func TestEncodeArgumentsBound(t *testing.T) {
	const frame = len(`{"x": ""}`)
	atLimit := `{"x":"` + strings.Repeat("y", MaxArgumentBytes-frame) + `"}`
	got, err := EncodeArguments(atLimit)
	if err != nil || len(got) != MaxArgumentBytes {
		t.Errorf("at the limit: %d bytes, %v; want %d, nil", len(got), err, MaxArgumentBytes)
	}
	_, err = EncodeArguments(strings.Replace(atLimit, "y", "yy", 1))
	if want := "Arguments too large: 10000001 bytes (max 10MB)"; err == nil || err.Error() != want {
		t.Errorf("over the limit: got %v, want %s", err, want)
	}
}

func FuzzEncodeArguments(f *testing.F) {
	for _, s := range []string{`{"a":1.5e10}`, `{"a":"\ud83c\udf89"}`, `{"a":[{}]}`, `{`, "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once, err := EncodeArguments(text)
		if err != nil {
			return
		}
		twice, err := EncodeArguments(string(once))
		if err != nil || string(twice) != string(once) {
			t.Errorf("%q became %q, then %q, %v: encoding is not stable", text, once, twice, err)
		}
	})
}
