package permission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// Limits on the environment of a request.
const (
	// MaxEnv is the maximum number of variables.
	MaxEnv = 256
	// MaxEnvName is the maximum length of a name, in bytes.
	MaxEnvName = 255
	// MaxEnvEntry is the maximum length of NAME=value with its NUL, in bytes. It is the
	// kernel's MAX_ARG_STRLEN, see execve(2).
	MaxEnvEntry = 131_072
	// MaxEnvTotal is the maximum length of all entries together, in bytes. The kernel
	// allows a quarter of the 8 MiB stack for arguments and environment, see execve(2).
	MaxEnvTotal = 512 << 10
)

// Unbuffered is the only variable of Python that a request may set: "1" passes on each write at
// once, "0" or "" collects output in blocks. See python(1).
const Unbuffered = "PYTHONUNBUFFERED"

// EnvError refuses one variable of a request. If Name is empty, it refuses the whole
// environment.
type EnvError struct {
	Name   string
	Reason string
	Secret bool // the variable is in the request's secret_env, not in its env
}

// Error names the variable and never its value, which may be a secret.
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

var envName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckEnv checks the environment of a request for a source of the kind. The error is an
// *EnvError about the first variable, by name, that is refused.
//
// A command may only set a few names (commandEnvironment). A script or code may set any
// name, with two exceptions: names that the sandbox sets, and names that change which code an
// interpreter, the loader or a common tool runs. Refused names are refused in upper and lower case.
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

// checkVariable says why a variable may not be set, or "". kind decides between the list of
// allowed names (commands) and the list of refused ones (scripts and code).
func checkVariable(kind SourceKind, name, value string) string {
	switch {
	case len(name) > MaxEnvName:
		return fmt.Sprintf("the name is longer than %d bytes", MaxEnvName)
	case !envName.MatchString(name):
		return "a name has only letters, digits and _, and does not begin with a digit"
	case strings.Contains(value, "\x00"):
		return "the value contains a NUL"
	case len(name)+len(value)+len("=\x00") > MaxEnvEntry:
		return fmt.Sprintf("longer than %d bytes with its value", MaxEnvEntry)
	case kind != Command && name == Unbuffered:
		if value != "" && value != "0" && value != "1" {
			return "write 1 to pass on each write of a Python at once, or 0 to collect output in blocks"
		}
		return ""
	case kind == Command && !commandMaySet(name):
		return "a command takes only " + commandEnvironment
	case reserved(strings.ToUpper(name)):
		return "the name is reserved: the sandbox sets it, or it changes what runs"
	}
	return ""
}

// commandEnvironment lists what commandMaySet allows, for messages.
const commandEnvironment = "LANG, LC_*, TZ, TERM, COLUMNS, LINES, NO_COLOR, GIT_AUTHOR_*, GIT_COMMITTER_*, APP_* and INPUT_*"

// commandMaySet reports whether a command may have the variable name: the variable must not change
// which code a program runs.
func commandMaySet(name string) bool {
	switch name {
	case "LANG", "TZ", "TERM", "COLUMNS", "LINES", "NO_COLOR":
		return true
	}
	if slices.Contains(gitHarmlessEnv, name) {
		return true
	}
	for _, prefix := range []string{"LC_", "APP_", "INPUT_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			return envName.MatchString(name)
		}
	}
	return false
}

// reserved reports whether a request may not set a name, which is in upper case.
func reserved(name string) bool {
	if slices.Contains(gitHarmlessEnv, name) || name == "NODE_ENV" || name == "NODE_DEBUG" || name == "NODE_NO_WARNINGS" {
		return false
	}
	if slices.Contains(reservedNames, name) {
		return true
	}
	return slices.ContainsFunc(reservedPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) ||
		slices.ContainsFunc(reservedSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// reservedNames, by paragraphs: names that the sandbox sets; shells; the C library and terminals;
// language runtimes; editors, pagers, archivers and other programs that take options or code from
// a variable.
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

// reservedPrefixes are families of names. A leading underscore marks names that launchers
// use themselves, such as __PYVENV_LAUNCHER__, _JAVA_OPTIONS and libcontainer's variables.
var reservedPrefixes = strings.Fields(`
	_ LD_ DYLD_ GLIBC_ MALLOC_ ASAN_ LSAN_ MSAN_ TSAN_ UBSAN_ GCOV_ LLVM_PROFILE_
	BASH SKILL PYTHON PIP_ PYTEST_ CONDA_ NODE_ NPM_CONFIG_ RUBY GEM_ BUNDLE_ PERL LUA_ PHP_ JULIA_ GUILE_
	DOTNET_ COMPLUS_ CORECLR_ AWKPATH AWKLIBPATH
	GIT_ SSH_ SVN_ RSYNC_ SUDO_ XDG_ DBUS_ GIO_ GTK_ GDK_PIXBUF_ QT_ MAGICK_ OPENSSL_ LISTEN_`)

// reservedSuffixes are names by which programs find another program to run: GIT_PAGER,
// SUDO_ASKPASS.
var reservedSuffixes = strings.Fields("PAGER _EDITOR _ASKPASS")
