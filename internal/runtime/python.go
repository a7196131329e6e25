package runtime

// Python says which Python a skill's Python programs run on.
type Python string

// The zero Python asks for nothing: the skill decides, else the daemon.
const (
	// Auto is the skill's venv, else the system's Python, else the embedded one.
	Auto Python = "auto"
	// System is the Python beneath /usr.
	System Python = "system"
	// Embedded is the CPython that comes with skillrund.
	Embedded Python = "embedded"
)
