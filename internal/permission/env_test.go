package permission

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestCheckEnv(t *testing.T) {
	for _, name := range []string{
		"FOO", "foo", "A", "API_KEY", "AWS_SECRET_ACCESS_KEY", "HTTP_PROXY", "https_proxy", "LANG", "LC_ALL", "TZ", "TERM", "NO_COLOR", "NODE_ENV", "MPLBACKEND",
		"OMP_NUM_THREADS", "APP_X", "INPUT_X", "DEBUG", "CI", "MY_PATH", "HOMEPAGE", "PATHS", "USERNAME", "ENVIRONMENT", "LDAP_URL", "DATABASE_URL", "GITHUB_TOKEN", "A9",
	} {
		for _, kind := range []SourceKind{Script, Code} {
			if err := CheckEnv(kind, map[string]string{name: "x y\n"}); err != nil {
				t.Errorf("%s %s: %v", kind, name, err)
			}
		}
	}
	for _, name := range []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "PWD", "OLDPWD", "IFS", "ENV", "BASH_ENV", "BASH_FUNC_x", "BASHOPTS", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE",
		"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "LD_DEBUG", "GCONV_PATH", "LOCPATH", "NLSPATH", "MALLOC_CHECK_", "MALLOC_PERTURB_", "GLIBC_TUNABLES", "RES_OPTIONS", "HOSTALIASES", "TZDIR", "TERMINFO",
		"PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONINSPECT", "PYTHONWARNINGS", "VIRTUAL_ENV", "PIP_INDEX_URL", "PYTEST_ADDOPTS", "__PYVENV_LAUNCHER__",
		"SKILL_NAME", "SKILL_DIR", "SKILLKIT_VERSION", "SKILLRUN_X", "SKILL", "SCRIPTS_DIR", "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "NODE_V8_COVERAGE", "NPM_CONFIG_SCRIPT_SHELL", "npm_config_x",
		"RUBYOPT", "RUBYLIB", "GEM_HOME", "BUNDLE_GEMFILE", "PERL5OPT", "PERL5LIB", "PERLLIB", "PERL5DB", "GIT_DIR", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "GIT_PAGER", "SSH_AUTH_SOCK", "SSH_ASKPASS",
		"EDITOR", "VISUAL", "PAGER", "MANPAGER", "SYSTEMD_PAGER", "BROWSER", "LESSOPEN", "LESS", "KUBE_EDITOR", "X_ASKPASS", "MAKEFLAGS", "TAR_OPTIONS", "GREP_OPTIONS", "RIPGREP_CONFIG_PATH", "WGETRC", "CURL_HOME",
		"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "PHPRC", "R_PROFILE", "LUA_PATH", "GODEBUG", "GOTRACEBACK", "GOMAXPROCS", "_LIBCONTAINER_INITPIPE", "_", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS",
		"ASAN_OPTIONS", "OPENSSL_CONF", "SSL_CERT_FILE", "LISTEN_FDS", "NOTIFY_SOCKET", "AWKPATH", "VIMINIT", "GTK_MODULES", "QT_PLUGIN_PATH", "DYLD_INSERT_LIBRARIES",
	} {
		for _, spelling := range []string{name, strings.ToLower(name), name[:1] + strings.ToLower(name[1:])} {
			var refused *EnvError
			if err := CheckEnv(Script, map[string]string{spelling: "x", "FOO": "x"}); !errors.As(err, &refused) || refused.Name != spelling {
				t.Errorf("%s: %v, want it refused", spelling, err)
			}
		}
	}
	for value, ok := range map[string]bool{"": true, "0": true, "1": true, "2": false, "x": false, "00": false} {
		for _, kind := range []SourceKind{Script, Code} {
			if err := CheckEnv(kind, map[string]string{Unbuffered: value}); (err == nil) != ok {
				t.Errorf("%s %s=%s: %v, want it allowed: %t", kind, Unbuffered, value, err, ok)
			}
		}
	}
	if err := CheckEnv(Command, map[string]string{Unbuffered: "1"}); err == nil {
		t.Errorf("a command may set %s", Unbuffered)
	}
	for _, name := range []string{"", "1A", "A=B", "A B", "A-B", "A.B", "é", "A\x00", "A\n", " A", "A ", "BASH_FUNC_x%%", "x()", strings.Repeat("A", MaxEnvName+1)} {
		for _, kind := range []SourceKind{Script, Code, Command} {
			if err := CheckEnv(kind, map[string]string{name: "x"}); err == nil {
				t.Errorf("%s %q passed", kind, name)
			}
		}
	}
}

func TestCheckEnvOfCommands(t *testing.T) {
	for _, name := range []string{"LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "COLUMNS", "LINES", "NO_COLOR", "APP_TOKEN", "INPUT_a"} {
		if err := CheckEnv(Command, map[string]string{name: "x"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"FOO", "lang", "Lang", "app_x", "APP_", "APP", "INPUT_", "LC_", "PATH", "TZDIR", "LANGUAGE", "GIT_DIR", "APP_-", "NODE_ENV", "TERMINFO"} {
		if err := CheckEnv(Command, map[string]string{name: "x"}); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}

func TestCheckEnvBounds(t *testing.T) {
	of := func(n, size int) map[string]string {
		env := map[string]string{}
		for i := range n {
			env[fmt.Sprintf("A%04d", i)] = strings.Repeat("x", size)
		}
		return env
	}
	const name = len("A0000")
	for _, c := range []struct {
		what string
		env  map[string]string
		ok   bool
	}{
		{"nil", nil, true},
		{"empty value", of(1, 0), true},
		{"count at the bound", of(MaxEnv, 1), true},
		{"count beyond", of(MaxEnv+1, 1), false},
		{"entry at the bound", of(1, MaxEnvEntry-name-2), true},
		{"entry beyond", of(1, MaxEnvEntry-name-1), false},
		{"total at the bound", of(64, MaxEnvTotal/64-name-2), true},
		{"total beyond", of(64, MaxEnvTotal/64-name-1), false},
		{"NUL", map[string]string{"A": "x\x00"}, false},
	} {
		if err := CheckEnv(Script, c.env); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok = %v", c.what, err, c.ok)
		}
	}
	err := CheckEnv(Script, map[string]string{"PATH": "secret"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v prints a value", err)
	}
}
