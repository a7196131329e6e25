package seccomp

import libseccomp "github.com/seccomp/libseccomp-golang"

// The tests are another package, because they import seccomptest, which imports this one.

// The texts of the three files. Tests replace ScriptText.
var (
	ScriptText = &scriptText
	ZygoteText = zygoteText
	PythonText = pythonText
)

// Parse reads the text of a policy.
var Parse = parse

// With returns p with the rules of more added.
func (p Policy) With(more Policy) Policy { return p.with(more) }

// CompileFor returns the filter of p for any architecture.
func (p *Policy) CompileFor(arch libseccomp.ScmpArch, extra []string) ([]byte, error) {
	return p.compileFor(arch, extra)
}
