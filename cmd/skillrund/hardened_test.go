package main

import (
	"debug/elf"
	"os"
	"testing"
)

// TestHardenedBinaries checks the linker's output: no memory is both writable and executable,
// and data that only the start-up code writes is read-only after it. With plain "go build"
// only skillrund gets this, from the flags of package sandbox. make build sets the flags for
// all programs.
func TestHardenedBinaries(t *testing.T) {
	programs := []string{"skillrund"}
	if os.Getenv("SKILLRUN_BIN") != "" {
		programs = append(programs, "skillrun", "skillrun-network", "skillrun-python")
	}
	for _, name := range programs {
		t.Run(name, func(t *testing.T) {
			f, err := elf.Open(binary(t, name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			checkSegments(t, f)
			checkBoundAtStart(t, f)
		})
	}
}

func checkSegments(t *testing.T, f *elf.File) {
	t.Helper()
	stack := false
	for _, p := range f.Progs {
		if p.Flags&elf.PF_W != 0 && p.Flags&elf.PF_X != 0 {
			t.Errorf("segment %v at %#x is writable and executable", p.Type, p.Vaddr)
		}
		if p.Type != elf.PT_GNU_STACK {
			continue
		}
		stack = true
		if p.Flags&elf.PF_X != 0 {
			t.Error("the stack is executable")
		}
	}
	if !stack {
		t.Error("no PT_GNU_STACK: the kernel may make the stack executable")
	}
}

// checkBoundAtStart checks for full RELRO: the start-up code fills the tables of addresses,
// and they lie in the memory that it makes read-only afterwards. A static program has no
// dynamic section with flags, so there the check uses the addresses of the tables only.
func checkBoundAtStart(t *testing.T, f *elf.File) {
	t.Helper()
	relro := relroOf(f)
	if relro == nil {
		t.Fatal("no PT_GNU_RELRO")
	}
	tables := 0
	for _, s := range f.Sections {
		if s.Name != ".got" && s.Name != ".got.plt" && s.Name != ".init_array" && s.Name != ".fini_array" {
			continue
		}
		tables++
		if s.Addr < relro.Vaddr || s.Addr+s.Size > relro.Vaddr+relro.Memsz {
			t.Errorf("%s is writable while the program runs", s.Name)
		}
	}
	if tables == 0 {
		t.Error("no table of addresses was found: nothing was checked")
	}
	if f.SectionByType(elf.SHT_DYNAMIC) == nil {
		return
	}
	flags, err := f.DynValue(elf.DT_FLAGS)
	if err != nil {
		t.Fatal(err)
	}
	more, err := f.DynValue(elf.DT_FLAGS_1)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range flags {
		if elf.DynFlag(v)&elf.DF_BIND_NOW != 0 {
			return
		}
	}
	for _, v := range more {
		if elf.DynFlag1(v)&elf.DF_1_NOW != 0 {
			return
		}
	}
	t.Error("symbols are bound when they are first called, not at the start")
}

func relroOf(f *elf.File) *elf.Prog {
	for _, p := range f.Progs {
		if p.Type == elf.PT_GNU_RELRO {
			return p
		}
	}
	return nil
}
