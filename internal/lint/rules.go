package lint

// Stable names of the rules; package skill has more. docs/validate.md has each rule with its
// reason and its remedy.
// Clients match these names, so a name is never reused for another rule.
const (
	RuleAboveSkill         = "above-skill"
	RuleAbsolutePath       = "absolute-path"
	RuleCommandRefused     = "command-refused"
	RuleInterpreterMissing = "interpreter-missing"
	RuleNetworkUndeclared  = "network-undeclared"
	RulePackageMissing     = "package-missing"
	RuleNodePackageMissing = "node-package-missing"
	RulePackageUndeclared  = "package-undeclared"
	RulePackageUnpinned    = "package-unpinned"
	RuleReferenceMissing   = "reference-missing"
	RuleScriptLineEnds     = "script-line-ends"
	RuleScriptPlace        = "script-place"
	RuleShebangBOM         = "shebang-byte-order-mark"
	RuleShebangInterpreter = "shebang-interpreter"
	RuleSystemMissing      = "system-package-missing"
	RuleToolProgram        = "tool-program-missing"
	RuleToolRule           = "tool-rule-unusable"
	RuleToolShadowed       = "tool-rule-shadowed"
	RuleVenv               = "venv-unusable"
)
