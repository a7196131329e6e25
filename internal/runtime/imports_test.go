package runtime

import (
	"slices"
	"strings"
	"testing"
)

func TestPreloads(t *testing.T) {
	const common = "common"
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"print(2 + 2)\n", ""},
		{"import sys, os.path as p\nfrom json import loads, dumps\n", ""},
		{"import csv\n", common},
		{"import sys, csv\n", common},
		{"from os import path\nimport own\n", common},
		{"import pandas\n", common + " pandas"},
		{"import pandas as pd, numpy as np\n", common + " numpy pandas"},
		{"import numpy.linalg\nfrom pandas.io import json\n", common + " numpy pandas"},
		{"def f():\n\tfrom PIL import Image\n", common + " PIL"},
		{"try:\n    import yaml # here\nexcept ImportError: pass\n", common + " yaml"},
		{"# import pandas\nx = 'import numpy'\n", ""},
		{"import own, pandas_like, antigravity\n", common},
		{"from own import numpy\n", common},
		{"from . import pandas\n", ""},
		{"import pandas\nimport pandas\n", common + " pandas"},
		{"import matplotlib.pyplot as plt\n", common + " numpy"},
		{"import numpy\nfrom sklearn import svm\n", common + " numpy scipy"},
	} {
		preloads := Preloads([]byte(tt.text))
		got := slices.DeleteFunc(slices.Clone(preloads), func(m string) bool { return slices.Contains(commonModules, m) })
		if len(preloads)-len(got) == len(commonModules) {
			got = slices.Insert(got, 0, common)
		}
		if strings.Join(got, " ") != tt.want || preloads == nil {
			t.Errorf("%q: got %v, want %q", tt.text, got, tt.want)
		}
	}
	if got := CommonPreloads(); !slices.Equal(got, commonModules) {
		t.Errorf("for an unknown text: got %v, want the common ones", got)
	}
}

func TestSearchesElsewhere(t *testing.T) {
	for text, want := range map[string]bool{
		"": false,
		"import os, sys\nprint(os.path.join('a', 'b'), sys.argv)\n": false,
		"import system.path\n":                                          false,
		"import sys\nsys.path.insert(0, 'lib')\n":                       true,
		"import sys\nsys . path += ['lib']\n":                           true,
		"__import__('sys').path.append('lib')\n":                        true,
		"from sys import path\n":                                        true,
		"import os, sys as s\ns.path.append('lib')\n":                   true,
		"import site\nsite.addsitedir('lib')\n":                         true,
		"import os\nos.chdir('lib')\n":                                  true,
		"import runpy\nrunpy.run_path('lib/run.py', run_name='main')\n": true,
		"import unittest\nunittest.TestLoader().discover('tests')\n":    true,
		"import pytest\npytest.main(['tests'])\n":                       true,
		"import imp\nimp.load_source('csv', 'lib/csv.txt')\n":           true,
		"SourceFileLoader('csv', 'lib/csv.txt').load_module()\n":        true,
		"import unittest\nunittest.main()\n":                            false,
	} {
		if got := SearchesElsewhere([]byte(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
