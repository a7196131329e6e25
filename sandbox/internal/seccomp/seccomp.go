package seccomp

import (
	_ "embed"
	"fmt"
)

//go:embed seccomp.yaml
var scriptText []byte

// Further calls of the zygote, and of Python zygotes (pythonText).
//
//go:embed seccomp_zygote.yaml
var zygoteText []byte

//go:embed seccomp_python.yaml
var pythonText []byte

// InstructionSize is sizeof(struct sock_filter), in bytes.
const InstructionSize = 8

// MaxInstructions bounds a filter: BPF_MAXINSNS of the kernel, and MAX_FILTER of sandbox/internal/pid1.
const MaxInstructions = 4096

// Filters are the compiled filter programs, each the bytes of a struct sock_filter array
// (seccomp(2)).
type Filters struct {
	Init, Script []byte
	Zygote       []byte // for the zygote; its descendants inherit it
	Python       []byte // for Python zygotes, in addition to Zygote; their children inherit both
}

// Compile returns the filters for this machine's architecture. Compile them once:
// libseccomp takes longer than the rest of a sandbox's start.
func Compile() (Filters, error) {
	p, err := ParsePolicy()
	if err != nil {
		return Filters{}, err
	}
	script, err := p.Compile(nil)
	if err != nil {
		return Filters{}, fmt.Errorf("script's filter: %w", err)
	}
	init, err := p.Compile(p.Init)
	if err != nil {
		return Filters{}, fmt.Errorf("init's filter: %w", err)
	}
	zygote, err := p.compileMore("seccomp_zygote.yaml", zygoteText)
	if err != nil {
		return Filters{}, err
	}
	python, err := p.compileMore("seccomp_python.yaml", pythonText)
	return Filters{Init: init, Script: script, Zygote: zygote, Python: python}, err
}

// compileMore returns a filter that allows the calls of p and those in text.
func (p Policy) compileMore(name string, text []byte) ([]byte, error) {
	more, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	all := p.with(more)
	b, err := all.Compile(nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}
