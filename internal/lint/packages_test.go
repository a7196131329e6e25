package lint

var packageRows = []row{
	{"packages that are there", files{"SKILL.md": md("python_packages: [\"pandas>=1.5,<3\", \"PyYAML==6.0\", \"ruamel.yaml~=0.1\"]\nsystem_packages: [git, poppler-utils]", ""), "scripts/a.py": "import pandas as pd, numpy\nimport yaml\nfrom ruamel.yaml import YAML\n"}, nil},
	{"packages missing", files{"SKILL.md": md("python_packages:\n  - polars==1.0\n  - older==1\nsystem_packages:\n  - ffmpeg\n  - gone", "")}, []string{
		"warning package-missing SKILL.md:5", "warning package-missing SKILL.md:6", "warning system-package-missing SKILL.md:8", "warning system-package-missing SKILL.md:9",
	}},
	{"packages of another Python", files{"SKILL.md": md("python: embedded\npython_packages: [pandas==1.5.3]", "")}, []string{"warning package-missing SKILL.md:5"}},
	{"package of another system", files{"requirements.txt": "pywin32==300; sys_platform == 'win32'\n"}, nil},
	{"package in the venv", files{"requirements.txt": "polars==1.0\n", "venv/pyvenv.cfg": "version = 3.11.2\n", "venv/lib/python3.11/site-packages/polars-1.0.dist-info/METADATA": ""}, nil},
	{"unpinned", files{"requirements.txt": "pandas\n\npyyaml>=5\npandas!=1.0\n"}, []string{
		"warning package-unpinned requirements.txt:1", "warning package-unpinned requirements.txt:3", "warning package-unpinned requirements.txt:4",
	}},
	{"pinned", files{"requirements.txt": "pandas==1.5.*\npyyaml>=5,<7\npandas~=1.5\npandas===1.5\n"}, nil},

	{"undeclared import", files{"scripts/a.py": "import os\n\ndef f():\n    from PIL import Image\nimport cv2, sys, nothing.else_\n"}, []string{
		"warning package-undeclared scripts/a.py:4", "warning package-undeclared scripts/a.py:5", "warning package-undeclared scripts/a.py:5",
	}},
	{"imports that come from somewhere", files{
		"scripts/a.py": "import helper\nfrom core import x\nfrom . import y\nfrom .z import w\nimport __main__\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\ntry:\n    import tqdm\nexcept ImportError:\n    import tqdm2\n" +
			"x = '''\nimport docstring\n'''\nimport json; x = 1\nimport importlib \\\n  .metadata\n",
		"scripts/helper.py": "", "lib/core/x.py": "",
	}, nil},
	{"script metadata", files{
		"scripts/a.py": "# /// script\n# dependencies = [\"pandas==1.5.3\"]\n# ///\nimport pandas\n",
		"scripts/b.py": "import pandas\n",
	}, []string{"warning package-undeclared scripts/b.py:1"}},
}
