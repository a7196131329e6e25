package environment

import (
	"testing"

	"github.com/skillrun/skillrun/internal/runtime"
)

var here = newPlatform("3.11.2", "x86_64")

func TestMarkers(t *testing.T) {
	for _, c := range []struct {
		marker  string
		applies bool
		bad     bool
	}{
		{"", true, false},
		{"python_version >= '3.8'", true, false},
		{"python_version < '3.9'", false, false}, // 3.11 is later, though "3.11" < "3.9"
		{`python_full_version == "3.11.2"`, true, false},
		{"python_version ~= '3.10'", true, false},
		{"python_version == '3.*'", true, false},
		{"python_version === '3.11'", true, false},
		{"'3.11' in python_version", true, false},
		{"sys_platform == 'win32'", false, false},
		{"sys.platform != 'win32'", true, false},
		{"os_name == 'posix' and platform_system == 'Linux'", true, false},
		{"os_name == 'nt' or platform_machine == 'x86_64'", true, false},
		{"os_name == 'nt' and (os_name == 'nt' or os_name == 'posix')", false, false},
		{"platform_machine not in 'arm64 aarch64'", true, false},
		{"platform_python_implementation == 'CPython'", true, false},
		{"extra == 'test'", false, false},
		{"os_name < 'z'", true, false},
		{"os_name <= 'posix'", true, false},
		{"os_name > 'z'", false, false},
		{"os_name >= 'z'", false, false},
		{"os_name === 'posix'", true, false},
		{"os_name ~= 'posix'", true, true},
		{"what == 'x'", true, true},
		{"os_name", true, true},
		{"os_name =", true, true},
		{"os_name == 'x", true, true},
		{"os_name == 'x' y", true, true},
		{"(os_name == 'x'", true, true},
		{"os_name == 'x' and", true, true},
		{"os_name == 'x' or or", true, true},
		{"os_name not 'x'", true, true},
		{"((((((((((((((((((((((((((((((((((((os_name == 'x'", true, true},
	} {
		got, err := here.applies(c.marker)
		if got != c.applies || (err != nil) != c.bad {
			t.Errorf("%q: got %t, %v; want %t, error %t", c.marker, got, err, c.applies, c.bad)
		}
	}
}

// FuzzMarkers looks for a marker or a version that ends the daemon.
func FuzzMarkers(f *testing.F) {
	for _, seed := range []string{"python_version >= '3.8'", "(os_name == 'a' or 'b' in extra) and python_version ~= '3'", "'' in ''", "python_version == '.*'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, marker string) {
		if applies, err := here.applies(marker); err != nil && !applies {
			t.Errorf("%q: unknown, and does not apply", marker)
		}
		runtime.Satisfies("1.0", marker)
		runtime.Satisfies(marker, ">=1")
	})
}
