package permission

import (
	"slices"
	"strings"
)

// kubectlRemote are subcommands of kubectl that only speak with the cluster and print the answer,
// kubernetes.io/docs/reference/kubectl. The others start a program, here or in a container (exec, run, debug, edit,
// diff, plugin), write files (cp, config) or listen (proxy, port-forward). An unknown subcommand is a plugin: a
// program kubectl-NAME.
var kubectlRemote = strings.Fields(`
	annotate api-resources api-versions apply autoscale cluster-info cordon create delete describe events explain expose get
	label logs options patch replace rollout scale set taint top uncordon version wait`)

// kubectlScopes are options with a value that often stand in front of the subcommand. The others don't.
var kubectlScopes = strings.Fields(`-n --namespace --context --cluster --user --request-timeout`)

// kubectlFiles are options that name a file with settings, which can name a program to start (client-go credential
// plugins), a program, or a file to write. kubectl takes no abbreviations of options.
var kubectlFiles = strings.Fields(`--kubeconfig --kuberc --profile-output --log-file --log-dir --cache-dir --output-directory
	--helm-command --enable-helm --enable-alpha-plugins --enable-exec --edit`)

// kubectlDanger lets a wildcard cover the subcommands of kubectlRemote. The configuration in a sandbox's HOME is
// empty, so it names no program.
func kubectlDanger(args []string, fixed int) string {
	at := 1
	for at < len(args) && strings.HasPrefix(args[at], "-") {
		name, _, attached := strings.Cut(args[at], "=")
		if !slices.Contains(kubectlScopes, name) {
			break
		}
		if at++; !attached {
			at++
		}
	}
	if at >= len(args) {
		return ""
	}
	if at >= fixed && !slices.Contains(kubectlRemote, args[at]) {
		return beyondRule(args[at])
	}
	for i, arg := range args[at:] {
		if name, _, _ := strings.Cut(arg, "="); at+i >= fixed && slices.Contains(kubectlFiles, name) {
			return beyondRule(arg)
		}
	}
	return ""
}
