package environment

import (
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// pipURL finds the packages that pip takes from a URL: "Collecting dep @ https://host/dep.whl (from
// dep@ https://host/dep.whl->needs-dep->-r requirements.txt (line 1))". pip ends at the first one that it can't fetch.
var pipURL = lazyregexp.New(`(?m)^ *Collecting (\S+?) ?@ ([a-z+]+://\S+)(?: \(from (.*)\))?\r?$`)

// elsewhere says which URL a package needs, or is empty. A build has no network, so pip only reports that the host has
// no address, or that git failed.
func (t *tail) elsewhere() string {
	all := pipURL.FindAllSubmatch(t.last, -1)
	if len(all) == 0 {
		return ""
	}
	m := all[len(all)-1]
	who := "a package"
	if chain := strings.Split(string(m[3]), "->"); len(chain) > 2 {
		who = chain[1]
	}
	return clip(fmt.Sprintf("%.100s needs %.100s from %.200s", who, m[1], m[2])) +
		"; packages come from the daemon's index and wheels only: declare a version that needs no URL, " +
		"or bring the packages in a virtual environment of the skill, venv/"
}
