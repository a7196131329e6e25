package toolview

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// A ScriptPathError is the ValueError of the published validate_script_path.
type ScriptPathError struct {
	Path    string // as requested
	Missing bool   // false: it exists, but not where scripts may be
	outside bool
}

func (e *ScriptPathError) Error() string {
	switch {
	case e.outside:
		return fmt.Sprintf("Script path '%s' is outside skill directory", e.Path)
	case e.Missing:
		return "Script not found: " + e.Path
	}
	return "Script must be in scripts/ directory: " + e.Path
}

// ValidateScriptPath returns the path of a skill's script in a sandbox, with links
// resolved. The error is a *ScriptPathError, the skill's error for a refused entry, or
// that the skill does not exist. Nothing is executed. An attempt to leave the skill is logged, as
// the contract promises.
func (v *View) ValidateScriptPath(ctx context.Context, who permission.Principal, ref, scriptPath string) (string, error) {
	sk, err := v.skills.For(who.Tenant).Resolve(ref)
	if err != nil {
		return "", err
	}
	// Lookup resolves links within the skill's snapshot, never on the machine's disk.
	entry, err := sk.Lookup(sk.Within(scriptPath))
	if e, ok := errors.AsType[*snapshot.PathError](err); ok {
		switch e.Reason {
		case snapshot.ReasonEscapes, snapshot.ReasonBadPath:
			v.log.WarnContext(ctx, fmt.Sprintf("Path traversal attack detected: skill=%s, script=%s", auditValue(sk.Name), auditValue(clip(scriptPath))))
			return "", &ScriptPathError{Path: scriptPath, outside: true}
		case snapshot.ReasonNotFound, snapshot.ReasonDirectory, snapshot.ReasonLoop:
			return "", &ScriptPathError{Path: scriptPath, Missing: true}
		case snapshot.ReasonOutside: // the skill itself
			return "", &ScriptPathError{Path: scriptPath}
		}
	}
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(entry.Path, "scripts/") {
		return "", &ScriptPathError{Path: scriptPath}
	}
	return sk.BaseDir() + "/" + entry.Path, nil
}
