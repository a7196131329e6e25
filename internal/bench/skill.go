package bench

import (
	"os"
	"path/filepath"
)

// benchSkill is the skill with the programs to time.
const benchSkill = "bench"

// benchFiles has that skill's files. A program that is also started bare has the same text
// there.
var benchFiles = map[string]string{
	"SKILL.md":          "---\nname: " + benchSkill + "\ndescription: What the benchmark runs.\nallowed-tools: Bash(true), Bash(sleep:*)\n---\n\n# Benchmark\n",
	"scripts/sum.py":    sumProgram,
	"scripts/total.py":  pandasProgram,
	"scripts/stamp.py":  stampProgram,
	"scripts/stream.py": streamProgram,
	"scripts/view.py":   viewProgram,
}

const (
	sumProgram = "print(2+2)\n"
	sumOutput  = "4\n"

	pandasProgram = "import pandas\nprint(pandas.DataFrame({'a': [1, 2, 3]})['a'].sum())\n"
	pandasOutput  = "6\n"

	// The script uses CLOCK_REALTIME, because time namespaces shift the other clocks, see
	// time_namespaces(7).
	stampProgram = "import os, time\nos.write(1, b'%d\\n' % time.time_ns())\n"

	streamProgram = `import os, sys
piece = b"0123456789abcdef" * 4096
for _ in range(int(sys.argv[1]) // len(piece)):
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(1, rest):]
`
	streamPiece = 16 * 4096

	// The start of a Python depends on where it searches for packages, and on the .pth
	// files there, which it runs.
	viewProgram = `import glob, os, site, sys
for d in sorted(set(site.getsitepackages() + [d for d in sys.path[1:] if d])):
    for f in [d] * os.path.isdir(d) + sorted(glob.glob(d + "/*.pth")):
        print(f, os.path.getsize(f) if f.endswith(".pth") else "")
print(sys.version)
`
)

// writeSkill writes a skill's files to dir/name.
func writeSkill(dir, name string, files map[string]string) error {
	for path, text := range files {
		path = filepath.Join(dir, name, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
