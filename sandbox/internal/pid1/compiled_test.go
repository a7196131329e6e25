package pid1

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestCompiledGuards reads what "go build" made of every C source of this package and
// would link: functions with arrays have a guard on their stack, and calls of the C
// library whose bounds the compiler knows are made by the functions that check them.
func TestCompiledGuards(t *testing.T) {
	sources, err := filepath.Glob("*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no C sources: %v", err)
	}
	objects := compiledObjects(t)
	checked := map[string]string{
		"init.c": "__memcpy_chk", "init_cloned.c": "__snprintf_chk", "init_child.c": "__snprintf_chk",
		"init_probe.c": "__vsnprintf_chk", "zygote.c": "__snprintf_chk",
	}
	for _, source := range sources {
		if source == "fault.c" || source == "sanitize.c" { // empty in the build that ships
			continue
		}
		o, ok := objects[source]
		if !ok {
			t.Errorf("%s: not among the objects", source)
			continue
		}
		if !o.needs["__stack_chk_fail"] {
			t.Errorf("%s: no function guards its stack", source)
		}
		if want := checked[source]; want != "" && !o.needs[want] {
			t.Errorf("%s: no call of %s", source, want)
		}
	}
}

// An object has the symbols that it takes from other objects, and those that it gives them.
type object struct{ needs, defines map[string]bool }

// compiledObjects returns the object of each C source of the package. It reads them from the
// archive in the go command's cache, which also has objects of cgo's own sources.
func compiledObjects(t *testing.T) map[string]object {
	t.Helper()
	path, err := exec.Command("go", "list", "-export", "-f", "{{.Export}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	archive, err := os.ReadFile(strings.TrimSpace(string(path)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]object{}
	for _, member := range archiveMembers(t, archive) {
		f, err := elf.NewFile(bytes.NewReader(member))
		if err != nil {
			continue // Go's own objects are not ELF
		}
		symbols, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		name, o := "", object{needs: map[string]bool{}, defines: map[string]bool{}}
		for _, s := range symbols {
			switch {
			case elf.ST_TYPE(s.Info) == elf.STT_FILE:
				name = filepath.Base(s.Name)
			case s.Section == elf.SHN_UNDEF:
				o.needs[s.Name] = true
			case elf.ST_BIND(s.Info) == elf.STB_GLOBAL:
				o.defines[s.Name] = true
			}
		}
		if _, err := os.Stat(name); err == nil {
			found[name] = o
		}
	}
	return found
}

// archiveMembers returns the members of an archive (ar(5)).
func archiveMembers(t *testing.T, archive []byte) [][]byte {
	t.Helper()
	rest, ok := bytes.CutPrefix(archive, []byte("!<arch>\n"))
	if !ok {
		t.Fatal("the package is no archive")
	}
	const headerSize, sizeAt = 60, 48
	var members [][]byte
	for len(rest) > 0 {
		if len(rest) < headerSize {
			t.Fatal(io.ErrUnexpectedEOF)
		}
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[sizeAt : sizeAt+10])))
		if err != nil || headerSize+size > len(rest) {
			t.Fatalf("a member of %d bytes: %v", size, err)
		}
		members = append(members, rest[headerSize:headerSize+size])
		rest = rest[min(headerSize+size+size%2, len(rest)):]
	}
	return members
}
