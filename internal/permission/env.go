package permission

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Bounds of the environment that a request may add.
const (
	// MaxEnv bounds the number of variables.
	MaxEnv = 256
	// MaxEnvName bounds a name, in bytes.
	MaxEnvName = 255
	// MaxEnvEntry bounds NAME=value with its NUL: the kernel's MAX_ARG_STRLEN,
	// execve(2).
	MaxEnvEntry = 131_072
	// MaxEnvTotal bounds all of them together, well below what the kernel gives
	// to arguments and environment (a quarter of the 8 MiB stack, execve(2)).
	MaxEnvTotal = 512 << 10
)

// EnvError refuses one variable of a request, or all of them if Name is empty.
type EnvError struct {
	Name   string
	Reason string
	Secret bool // the variable is in the request's secret_env, not in its env
}

func (e *EnvError) Error() string {
	field := e.Field()
	if e.Name == "" {
		return field + ": " + e.Reason
	}
	return fmt.Sprintf("%s %s: %s", field, excerpt(e.Name), e.Reason)
}

// Field is the field of the request that holds the variable, as the contract names it.
func (e *EnvError) Field() string {
	if e.Secret {
		return "secret_env"
	}
	return "env"
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckEnv refuses what a request may not set in the environment of a source of
// that kind; the error is an *EnvError about the first such name. A command
// takes only a short list of names. A script or code takes any name but those
// that the sandbox sets and those that change what an interpreter, the loader,
// or a common tool runs before or beside the script. A refused name is refused in
// every spelling of case.
func CheckEnv(kind SourceKind, env map[string]string) error {
	if len(env) > MaxEnv {
		return &EnvError{Reason: fmt.Sprintf("more than %d variables", MaxEnv)}
	}
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	slices.Sort(names)
	total := 0
	for _, name := range names {
		if reason := checkVariable(kind, name, env[name]); reason != "" {
			return &EnvError{Name: name, Reason: reason}
		}
		total += len(name) + len(env[name]) + len("=\x00")
	}
	if total > MaxEnvTotal {
		return &EnvError{Reason: fmt.Sprintf("more than %d bytes together", MaxEnvTotal)}
	}
	return nil
}

func checkVariable(kind SourceKind, name, value string) string {
	switch {
	case len(name) > MaxEnvName:
		return fmt.Sprintf("the name is longer than %d bytes", MaxEnvName)
	case !envName.MatchString(name):
		return "a name consists of letters, digits and _, and begins with no digit"
	case strings.Contains(value, "\x00"):
		return "the value contains a NUL"
	case len(name)+len(value)+len("=\x00") > MaxEnvEntry:
		return fmt.Sprintf("longer than %d bytes with its value", MaxEnvEntry)
	case kind == Command && !commandMaySet(name):
		return "a command takes only " + commandEnvironment
	case reserved(strings.ToUpper(name)):
		return "the name is reserved: the sandbox sets it, or it changes what runs"
	}
	return ""
}

// commandEnvironment says what commandMaySet allows.
const commandEnvironment = "LANG, LC_*, TZ, TERM, COLUMNS, LINES, NO_COLOR, APP_* and INPUT_*"

// commandMaySet reports whether a command's environment may hold name: nothing
// that a program under a rule would take an order from.
func commandMaySet(name string) bool {
	switch name {
	case "LANG", "TZ", "TERM", "COLUMNS", "LINES", "NO_COLOR":
		return true
	}
	for _, prefix := range []string{"LC_", "APP_", "INPUT_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			return envName.MatchString(name)
		}
	}
	return false
}

// reserved reports whether a request may not set an upper-case name.
func reserved(name string) bool {
	if name == "NODE_ENV" || name == "NODE_DEBUG" || name == "NODE_NO_WARNINGS" {
		return false
	}
	if slices.Contains(reservedNames, name) {
		return true
	}
	return slices.ContainsFunc(reservedPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) ||
		slices.ContainsFunc(reservedSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

var reservedNames = strings.Fields(`
	PATH HOME USER LOGNAME SHELL TMPDIR TMP TEMP TEMPDIR PWD OLDPWD SCRIPTS_DIR VIRTUAL_ENV

	IFS ENV SHELLOPTS PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND CDPATH GLOBIGNORE EXECIGNORE FCEDIT
	FPATH ZDOTDIR INPUTRC HOSTFILE POSIXLY_CORRECT SHLVL UID EUID PPID OPTIND OPTARG

	GCONV_PATH GETCONF_DIR LOCPATH NLSPATH LOCALDOMAIN HOSTALIASES RES_OPTIONS TZDIR TERMINFO
	TERMINFO_DIRS TERMCAP TERMPATH

	CLASSPATH JAVA_HOME JAVA_OPTS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS PHPRC TCLLIBPATH OCAMLRUNPARAM CAMLRUNPARAM
	R_HOME R_PROFILE R_PROFILE_USER R_ENVIRON R_ENVIRON_USER R_LIBS R_LIBS_USER R_LIBS_SITE
	GODEBUG GOTRACEBACK GOFLAGS GOENV GOGC GOMAXPROCS GOMEMLIMIT GOTOOLCHAIN GOROOT GOCOVERDIR
	ELECTRON_RUN_AS_NODE

	EDITOR VISUAL BROWSER LESS LESSOPEN LESSCLOSE LESSKEY LESSKEYIN MORE MAKEFLAGS MFLAGS GNUMAKEFLAGS MAKEFILES
	TAR_OPTIONS GREP_OPTIONS GZIP BZIP BZIP2 XZ_OPT XZ_DEFAULTS ZIPOPT UNZIP RIPGREP_CONFIG_PATH ACKRC
	CURL_HOME WGETRC SYSTEM_WGETRC NETRC GNUPGHOME OPENSSL_CONF SSL_CERT_FILE SSL_CERT_DIR SSLKEYLOGFILE
	CURL_CA_BUNDLE REQUESTS_CA_BUNDLE EX_INIT EXINIT VIMINIT GVIMINIT VIM VIMRUNTIME
	HGRCPATH HGEDITOR CVS_RSH RSH NOTIFY_SOCKET`)

// Families of names. A leading underscore is where launchers pass things to
// themselves (__PYVENV_LAUNCHER__, _JAVA_OPTIONS, libcontainer's own).
var reservedPrefixes = strings.Fields(`
	_ LD_ DYLD_ GLIBC_ MALLOC_ ASAN_ LSAN_ MSAN_ TSAN_ UBSAN_ GCOV_ LLVM_PROFILE_
	BASH SKILL PYTHON PIP_ PYTEST_ CONDA_ NODE_ NPM_CONFIG_ RUBY GEM_ BUNDLE_ PERL LUA_ PHP_ JULIA_ GUILE_
	DOTNET_ COMPLUS_ CORECLR_ AWKPATH AWKLIBPATH
	GIT_ SSH_ SVN_ RSYNC_ SUDO_ XDG_ DBUS_ GIO_ GTK_ GDK_PIXBUF_ QT_ MAGICK_ OPENSSL_ LISTEN_`)

var reservedSuffixes = strings.Fields("PAGER _EDITOR _ASKPASS")
