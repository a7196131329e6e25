package permission

import (
	"strings"
	"testing"
)

// TestOptionSpellings tries to get around rules by other spellings of options.
func TestOptionSpellings(t *testing.T) {
	for _, c := range []struct {
		command string
		allow   bool
	}{
		{"zip -T -qTT 'sh #' x.zip f", false},
		{"zip -rTTsh x.zip f", false},
		{"zip -T --unzip-com=sh x.zip f", false},
		{"zip -rqT x.zip f", true},
		{"gcc @options a.c", false},
		{"gcc -B. a.c", false},
		{"gcc -B . a.c", false},
		{"gcc --prefix=. a.c", false},
		{"gcc -fplugin=./x.so a.c", false},
		{"gcc -Wl,-plugin,./x.so a.c", false},
		{"gcc -Xlinker @x a.c", false},
		{"gcc -specs=x a.c", false},
		{"gcc --specs=x a.c", false},
		{"gcc -Wall -O2 -o a a.c -lm", true},
		{"gcc -Wl,-rpath,/usr/lib a.c", true},
		{"ar --plugin ./x.so t a.a", false},
		{"sqlite3 x.db '.shell id'", false},
		{"sqlite3 x.db 'select 1;\n.system id'", false},
		{"sqlite3 x.db '.mode csv' '.import |id t'", false},
		{"sqlite3 -cmd '.shell id' x.db 'select 1'", false},
		{"sqlite3 --cmd '.shell id' x.db 'select 1'", false},
		{"sqlite3 -init x x.db 'select 1'", false},
		{"sqlite3 x.db \"select EDIT('a','id')\"", false},
		{"sqlite3 x.db \"select load_extension('./x')\"", false},
		{"sqlite3 x.db \"select writefile('a','b')\"", false},
		{"sqlite3 x.db", false},
		{"sqlite3 -separator x x.db", false},
		{"sqlite3", false},
		{"sqlite3 -safe x.db '.shell id'", true}, // sqlite3 refuses it
		{"sqlite3 -header -csv x.db 'select * from t'", true},
		{"sqlite3 x.db .tables", true},
		{"sqlite3 x.db '.schema t'", true},
		{"pdflatex -shell-esc a.tex", false},
		{"pdflatex --shell-e a.tex", false},
		{"pdflatex -cnf-line=shell_escape=t a.tex", false},
		{"pdflatex -cnf-l shell_escape=t a.tex", false},
		{"pdflatex -fmt=./x a.tex", false},
		{"pdflatex '&./x' a.tex", false},
		{"pdflatex -interaction=nonstopmode -halt-on-error a.tex", true},
		{"latexmk -e 'system(1)' a.tex", false},
		{"latexmk -r x a.tex", false},
		{"latexmk -pdf a.tex", true},
		{"pandoc -t x.lua a.md", false},
		{"pandoc -tx.lua a.md", false},
		{"pandoc -st x.lua a.md", false},
		{"pandoc --to=x.lua a.md", false},
		{"pandoc --to x.lua a.md", false},
		{"pandoc -w x.lua a.md", false},
		{"pandoc -f x.lua a.md", false},
		{"pandoc --read=./x a.md", false},
		{"pandoc -d x a.md", false},
		{"pandoc -dx a.md", false},
		{"pandoc --def=x a.md", false},
		{"pandoc --pdf-engine-opt=-shell-escape a.md -o a.pdf", false},
		{"pandoc --data-dir=. a.md", false},
		{"pandoc -s -f markdown+smart -t html5 a.md -o a.html", true},
		{"wget --config=x y", false},
		{"wget --config x y", false},
		{"wget --conf=x y", false},
		{"wget -q https://example.com/a.b", true},
		{"curl -K x", false},
		{"curl -sK x", false},
		{"curl -sKx", false},
		{"curl --config x", false},
		{"curl --conf=x", false},
		{"curl --engine ./x.so y", false},
		{"curl -fsSL -o x https://example.com/K", true},
		{"curl -H 'Accept: K' https://example.com", true},
		{"exiftool -if 'system(1)' a.jpg", false},
		{"exiftool -IF 'system(1)' a.jpg", false},
		{"exiftool -if2 'system(1)' a.jpg", false},
		{"exiftool -config x a.jpg", false},
		{"exiftool -@ x", false},
		{"exiftool -p '${filename;system(1)}' a.jpg", false},
		{"exiftool '-comment<${filename;system(1)}' a.jpg", false},
		{"exiftool -api filter=system a.jpg", false},
		{"exiftool -json a.jpg", true},
		{`psql -c '\! id'`, false},
		{`psql -qc '\! id'`, false},
		{`psql --command='\! id'`, false},
		{`psql --comm '\! id'`, false},
		{`psql -c '\o |id'`, false},
		{`psql -c 'select 1 \g |id'`, false},
		{`psql -c '\i x'`, false},
		{`psql -f x.sql`, false},
		{`psql db`, false},
		{`psql -c 'select 1' db`, true},
		{`psql -c '\dt+' db`, true},
		{`psql -lqt`, true},
		{`psql -l`, true},
		{`mysql -e '\! id'`, false},
		{`mysql -e 'select 1; system id'`, false},
		{`mysql --execute='source x'`, false},
		{`mysql --pager=id -e 'select 1'`, false},
		{`mysql db`, false},
		{`mysql -e 'select 1' db`, true},
		{"less +!id f", false},
		{"rsync --daemon --config=x", false},
		{"openssl req -engine ./x.so", false},
		{"cmake -P x.cmake", false},
		{"cmake -E env id", false},
		{"cmake --build .", true},

		{"git --git-dir=x status", false},
		{"git --git-dir x status", false},
		{"git --bare status", false},
		{"git -C --exec-path -c core.fsmonitor=x status", false},
		{"git -c core.fsmonitor=x -C --exec-path status", false},
		{"git --exec-path", true},
		{"git clone --separate-git-dir=x y z", false},
		{"git init --separate-git-dir x", false},
		{"git apply --unsafe-paths x", false},
		{"git checkout-index --prefix=.git/ config", false},
		{"git log --format=x --output=.git/config", false},
		{"git log --format=x --output=sub/.GIT/config", false},
		{"git mailinfo .git/config x", false},
		{"git config --rename-section foo alias", false},
		{"git config --rename foo alias", false},
		{"git config rename-section foo alias", false},
		{"git config rebase.instructionFormat '%s%nexec id'", false},
		{"git fast-import --export-marks=.git/config", false},
		{"git maintenance start", false},
		{"git add .gitignore", true},
		{"git clone https://example.com/x.git", true},
		{"git commit -m 'ignore .git and more'", true},
		{"git -C sub --work-tree=. status", true},
		{"git town sync", true}, // runs the program git-town; the alias is switched off
	} {
		program, _, _ := strings.Cut(c.command, " ")
		for _, rule := range []string{"Bash(" + program + ":*)", "Bash(" + program + " *)", "Bash(" + program[:1] + "*)"} {
			decideRows(t, []row{{rule, c.command, c.allow}})
		}
		decideRows(t, []row{{"Bash", c.command, true}})
	}
}

func TestRunnersOfTheAttack(t *testing.T) {
	for _, runner := range []string{
		"pipesz", "uclampset", "coresched", "faketime", "rlwrap", "sg", "hyperfine", "torsocks", "proxychains", "gtimeout", "softlimit",
		"uv run", "poetry run", "pyenv exec", "mise x", "npm exec", "uv --directory . run", "bundle exec",
	} {
		program, _, _ := strings.Cut(runner, " ")
		for _, rule := range []string{"Bash(" + program + ":*)", "Bash(" + runner + ":*)", "Bash(" + runner + " *)", "Bash(" + program[:1] + "*)"} {
			decideRows(t, []row{{rule, runner + " id", false}, {rule, runner + " sh -c id", false}})
		}
	}
	decideRows(t, []row{
		{"Bash(uv run pytest:*)", "uv run pytest -v", true},
		{"Bash(uv run --with x pytest:*)", "uv run --with x pytest -v", true},
		{"Bash(uv run --with:*)", "uv run --with x sh", false},
		{"Bash(uv:*)", "uv add requests", true},
		{"Bash(npm:*)", "npm run build", true},
		{"Bash(npm:*)", "npm install --global x", true},
		{"Bash(poetry run python scripts/*)", "poetry run python scripts/../evil.py", false},
		{"Bash(hyperfine ls)", "hyperfine ls", true},
		{"Bash(xargs git log:*)", "xargs git log -n 1", false}, // --output=.git/config may come from there
		{"Bash(xargs git log)", "xargs git log", true},
		{"Bash(xargs cat:*)", "xargs cat", true},
	})
}

func TestWildcardsStayInTheirFolder(t *testing.T) {
	decideRows(t, []row{
		{"Bash(ls*)", "lsx/run", false},
		{"Bash(ls*)", "ls/../lsx", false},
		{"Bash(ls*)", "lsx run/x", true},
		{"Bash(ls*)", "ls ../x", true},
		{"Bash(*sh)", "x/zzsh", false},
		{"Bash(* --version)", "./x --version", false},
		{"Bash(* --version)", "x --version", true},
		{"Bash(scripts/*)", "scripts/x.sh a/b", true},
		{"Bash(scripts/*)", "scripts/sub/x.sh", false},
		{"Bash({baseDir}/scripts/*)", "{baseDir}/scripts/x.sh", true},
		{"Bash({baseDir}/scripts/*)", "{baseDir}/scripts/../../../workspace/x", false},
		{"Bash(*/run.sh)", "x/run.sh", true},
		{"Bash(*/run.sh)", "x/y/run.sh", false},
		{"Bash(python3 scripts/*)", "python3 scripts/x.py", true},
		{"Bash(python3 scripts/*)", "python3 scripts/x.py ../in.csv", true},
		{"Bash(python3 scripts/*)", "python3 scripts/sub/x.py", true},
		{"Bash(python3 scripts/*)", "python3 scripts/../evil.py", false},
		{"Bash(python3 scripts/*)", "python3 scripts/./../evil.py", false},
		{"Bash(python3 scripts/*)", "python3 scripts//../evil.py", false},
		{"Bash(python3 scripts/*)", "python3 scripts/..", false},
		{"Bash(python3 scripts/*)", "python3 'scripts/..'/evil.py", false},
		{"Bash(python3 scripts/*.py)", "python3 scripts/../evil.py", false},
		{"Bash(python3 scripts/*.py)", "python3 scripts/../evil x.py", false},
		{"Bash(python3 scripts/.*)", "python3 scripts/../evil.py", false},
		{"Bash(python3 -u * scripts/*)", "python3 -u -B scripts/../evil.py", false},
		{"Bash(python3 scripts/..x*)", "python3 scripts/..xy", true},
		{"Bash(cat ../in/*)", "cat ../in/x", true},
		{"Bash(cat ../in/*)", "cat ../in/../x", false},
		{"Bash(python*tracker*)", "python launch_tracker.py ../x", true}, // published skills use such rules: * is any text
		{"Bash(git log main..*)", "git log main..dev", true},
		{"Bash(git diff:*)", "git diff ../x", true},
	})
	d := ParseRules([]string{"Bash(python3 scripts/*)"}, "").Decide("python3 scripts/../evil.py")
	if !strings.Contains(d.Reason, `"scripts/../evil.py"`) && !strings.Contains(d.Reason, "'scripts/../evil.py' leaves the folder") || d.Missing == "" {
		t.Errorf("reason %q, missing %q", d.Reason, d.Missing)
	}
}

// No command of a line may write the code that another one runs.
func TestLinesThatWriteWhatTheyRun(t *testing.T) {
	rules := "Bash(git status:*) Bash(cp:*) Bash(tee:*) Bash(cat:*) Bash(sed:*) Bash(python3 scripts/*) Bash(python3 main.py:*) Bash(python3 {baseDir}/scripts/x.py:*) Bash(./run.sh:*) Bash(mv a .git/b) Bash(ls:*) Bash(chmod:*) Bash(python3 -m tool:*)"
	decideRows(t, []row{
		{rules, "cp x .git/config && git status", false},
		{rules, "cp x sub/.GIT/config; git status", false},
		{rules, "cp --target-directory=.git x && git status", false},
		{rules, "tee .git/config <<< x | git status", false},
		{rules, "mv a .git/b && git status", true}, // the rule names the path
		{rules, "cp x .git/config", true},          // no command of the line runs git
		{rules, "cat x > .git/config", false},
		{rules, "cat x > .git/config && git status", false},
		{rules, "cat x >> sub/.git/hooks/x", false},
		{rules, "cat < .git/HEAD", true},
		{rules, "cat .git/HEAD && git status", true},
		{rules, "ls .git; git status", true},
		{rules, "cp .gitignore x && git status", true},
		{rules, "cp x .g*/config && git status", false},
		{rules, "cp x .gi?/config && git status", false},
		{rules, "cp *.csv data && git status", true},
		{rules, "cp * data && git status", true},
		{rules, "cp x scr*ts && python3 scripts/x.py", false},
		{rules, "cp x [s]cripts/x.py && python3 scripts/x.py", false},
		{rules, "cp x [!a]cripts/x.py && python3 scripts/x.py", false},
		{rules, "cp x [[:alpha:]]cripts/x.py && python3 scripts/x.py", false},
		{rules, "cp x [.]git/config && git status", false},
		{rules, "cp *.csv data && python3 scripts/x.py", true},
		{rules, "cp x scripts/x.py && python3 scripts/x.py", false},
		{rules, "python3 scripts/x.py || cp x scripts/x.py", false},
		{rules, "cp -t scripts x.py && python3 scripts/x.py", false},
		{rules, "cp -r x/scripts . && python3 scripts/x.py", false},
		{rules, "cat <<E > scripts/x.py\nx\nE\npython3 scripts/x.py", false},
		{rules, "cat x > scripts/json.py; python3 scripts/x.py", false},
		{rules, "sed -i s/a/b/ scripts/x.py; python3 scripts/x.py", false},
		{rules, "cat x > main.py && python3 main.py", false},
		{rules, "cat x > json.py && python3 main.py", false},
		{rules, "cat x > json/__init__.py && python3 -m tool", false},
		{rules, "cp x json.py && python3 main.py", false},
		{rules, "cat x > /dev/null && python3 main.py", true},
		{rules, "cat x > run.sh; ./run.sh", false},
		{rules, "chmod +x run.sh && ./run.sh", true},
		{rules, "cat scripts/x.py | python3 scripts/y.py", true},
		{rules, "cp in.csv data/in.csv && python3 scripts/x.py data/in.csv > out.json", true},
		{rules, "python3 scripts/x.py > scripts/out", false},
		{rules, "cat x > scripts/x.py; python3 {baseDir}/scripts/x.py", true}, // another file
		// uniq(1) writes its second operand.
		{"Bash(uniq:*) Bash(python3 scripts/*)", "uniq x scripts/y.py; python3 scripts/y.py", false},
		{"Bash(uniq:*) Bash(python3 scripts/*)", "uniq x out; python3 scripts/y.py out", true},
		{"Bash(python3:*) Bash(cat:*)", "cat x > scripts/x.py; python3 scripts/x.py", true},
		{"Bash", "cp x .git/config && git status", true},
		{"Bash", "cat x > .git/config; python3 scripts/x.py", true},
	})
}
