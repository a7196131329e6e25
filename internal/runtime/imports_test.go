package runtime

import (
	"slices"
	"strings"
	"testing"
)

func TestPreloads(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"print(2 + 2)\n", ""},
		{"import pandas\n", "pandas"},
		{"import pandas as pd, numpy as np\n", "numpy pandas"},
		{"import numpy.linalg\nfrom pandas.io import json\n", "numpy pandas"},
		{"def f():\n\tfrom PIL import Image\n", "PIL"},
		{"try:\n    import yaml # here\nexcept ImportError: pass\n", "yaml"},
		{"# import pandas\nx = 'import numpy'\n", ""},
		{"import own, pandas_like, antigravity\n", ""},
		{"from . import pandas\n", ""},
		{"import pandas\nimport pandas\n", "pandas"},
	} {
		got := slices.DeleteFunc(Preloads([]byte(tt.text)), func(m string) bool { return slices.Contains(commonModules, m) })
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q: got %v, want %q", tt.text, got, tt.want)
		}
	}
	if got := Preloads(nil); !slices.Contains(got, "json") {
		t.Errorf("got %v, want the common ones", got)
	}
}
