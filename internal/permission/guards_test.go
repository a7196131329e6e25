package permission

import (
	"strings"
	"testing"
)

func TestDangerousForms(t *testing.T) {
	for _, c := range []struct {
		command string
		allow   bool
	}{
		{"kubectl get pods -n shop -o wide", true},
		{"kubectl -n shop --context=test logs -l app=web --tail=100", true},
		{"kubectl rollout status deployment/web --timeout=60s", true},
		{"kubectl set env deployment/web A=b", true},
		{"kubectl apply -f k8s/", true},
		{"kubectl", true},
		{"kubectl exec web -- id", false},
		{"kubectl debug web", false},
		{"kubectl run web --image=web", false},
		{"kubectl edit cm/web", false},
		{"kubectl diff -f web.yaml", false},
		{"kubectl foo", false}, // the plugin kubectl-foo
		{"kubectl config set-credentials me --exec-command=id", false},
		{"kubectl --kubeconfig=k.yaml get pods", false},
		{"kubectl --kubeconfig k.yaml get pods", false},
		{"kubectl -n get exec web -- id", false},
		{"kubectl -n=shop exec web -- id", false},
		{"kubectl -nshop exec web -- id", false},
		{"kubectl -v get exec", false},
		{"kubectl get pods --kubeconfig k.yaml", false},
		{"kubectl get pods --kuberc=k.yaml", false},
		{"kubectl get pods --profile-output=/tmp/x", false},
		{"kubectl create -f web.yaml --edit", false},
		{"kubectl apply -k . --enable-helm --helm-command=./x", false},

		{"find . -name '*.py' -type f", true},
		{"find . -exec id {} +", false},
		{"find . -execdir id ';'", false},
		{"find . -ok id ';'", false},
		{"find . -okdir id ';'", false},
		{"find . -delete", false},
		{"find . -fprint x", false},
		{"find . -fprintf x %p", false},
		{"find . -fprint0 x", false},
		{"find . -fls x", false},
		{`find . "-ex"ec id ';'`, false},
		{"find . -newer x -print0", true},

		{"aria2c -x4 -d out https://example.com/a", true},
		{"aria2c --on-download-complete=./x https://example.com/a", false},
		{"aria2c --on-download-error ./x https://example.com/a", false},
		{"aria2c --conf=x https://example.com/a", false},
		{"pidstat -u -p 1", true},
		{"pidstat -e id", false},
		{"pidstat -ue id", false},
		{"scrot -d 1 a.png", true},
		{"scrot a.png -e 'id $f'", false},
		{"scrot --exec=id a.png", false},

		{"sort -rn -k2,2 f", true},
		{"sort --compress-program=./x f", false},
		{"sort --compress-program ./x f", false},
		{"sort --comp=./x f", false},
		{"sort -o out f", true},
		{"sort -o /etc/passwd f", false},
		{"sort -uo ../x f", false},
		{"sort --output=/x f", false},
		{"sort -t o -k1", true},
		{"sort -to f", true},

		{"sed s/a/b/g f", true},
		{"sed -n '/x/,/y/p' f", true},
		{"sed -e 's/a/b/' -e '$d' f", true},
		{"sed -i.bak s/a/b/ f", true},
		{"sed -i/tmp/x s/a/b/ f", false},
		{"sed -E 's/([a-z]+) ([a-z]+)/\\2 \\1/g; 1,3d; $!N' f", true},
		{"sed ':a;N;$!ba;s/\\n/ /g' f", true},
		{"sed '/[/]/d' f", false}, // where the expression ends is in doubt
		{"sed 's|/usr|/opt|' f", true},
		{"sed 's/[^,]*,//' f", true},
		{"sed 's/[[:space:]]*$//' f", true},
		{"sed '/start/a some text; e id' f", true}, // text to the end of the line
		{"sed 's/e/w/;y/ew/we/' f", true},
		{"sed -n 'w /dev/stdout' f", true},
		{"sed '/w/{s/a/b/;p}' f", true},
		{"sed 1e", false},
		{"sed '1e id' f", false},
		{"sed 's/a/id/e' f", false},
		{"sed 's/a/id/ge' f", false},
		{"sed 's/a/b/ e' f", false},
		{"sed 's/a/b/w out' f", false},
		{"sed 's/a/b/;w out' f", false},
		{"sed 'W out' f", false},
		{"sed -n '/x/w out' f", false},
		{"sed '/x/!{p;e id\n}' f", false},
		{"sed -e p -e 'e id' f", false},
		{"sed --expression='e id' f", false},
		{"sed --exp 'e id' f", false},
		{"sed -ne 'e id' f", false},
		{"sed -n -- 'e id' f", false},
		{"sed f -e 'e id'", false},
		{"sed -f x.sed f", false},
		{"sed --file=x.sed f", false},
		{"sed ':a;e id' f", false},
		{"sed ':a}' f", false},
		{"sed 's/[/]/R/e' f", false},
		{"sed 'a text\ne id' f", false},
		{"sed 's/a/b/;#x\ne id' f", false},
		{"sed '\\,x,e id' f", false},
		{"sed '0~3e id' f", false},
		{"sed 'ba;e id' f", false},
		{"sed '1!e id' f", false},
		{"sed 'r x\ne id' f", false},
		{"sed -V x 'e id' f", false},
		{"sed 'k' f", false},
		{"sed --sandbox 's/a/b/e' f", true},

		{"awk '{print $1}' f", true},
		{"awk -F'|' '{s+=$2} END{print s/NR}' f", true},
		{"awk '/a|b/ {print}' f", true},
		{"awk '$1 ~ /x|y/ || $2/2 > 1 {print \"a|b\"}' f", true},
		{"awk -v x=1 '{print x}' f", true},
		{"awk 'BEGIN{system(\"id\")}'", false},
		{"awk '{print | \"id\"}' f", false},
		{"awk '{print |& \"id\"}' f", false},
		{"awk '{\"id\" | getline x}' f", false},
		{"awk '@load \"x\"; {print}' f", false},
		{"awk '{f=\"system\"; @f(\"id\")}' f", false},
		{"awk -f x.awk f", false},
		{"awk --file=x.awk f", false},
		{"awk -F, -f x.awk", false},
		{"awk -e 'BEGIN{system(1)}'", false},
		{"awk '-eBEGIN{system(1)}'", false},
		{"awk --source='BEGIN{system(1)}'", false},
		{"awk -E x", false},
		{"awk -i x 1", false},
		{"awk -l x 1", false},
		{"awk -W exec x", false},
		{"awk -- 'BEGIN{system(1)}'", false},
		{"awk '/[/\"]/ {system(\"id\")}'", false},
		{"awk '{x=1}/#/{system(\"id\")}'", false},
		{"awk '{if (x) /\"/; system(1); y=\"\"}'", false},
		{"awk '\"a\\\nb\" {system(\"id\")}'", false},
		{"awk '{x = 1 \\\n/ system(\"id\") /1}'", false},
		{"awk '{return /\"/; system(\"\")}'", false},
		{"gawk 'BEGIN{system(1)}'", false},
		{"mawk 'BEGIN{system(1)}'", false},
		{"awk '{print $NF/2 \"|\"}' f", true},
		{"mawk '{x = $length /\"/; system(\"id\")}#\"' f", false},
		{"mawk '{x = $getline /\"/; system(\"id\")}#\"' f", false},
		{"awk -e 1 '{print}' f", true},
		{"original-awk -e1 'BEGIN{system(1)}'", false},

		{"git status", true},
		{"git log --oneline -n 5", true},
		{"git -C sub status", true},
		{"git --no-pager log", true},
		{"git commit -m 'ext is fine'", true},
		{"git diff --output=out.txt", true},
		{"git config user.name x", true},
		{"git config --get alias.x", true},
		{"git grep -n exec", true},
		{"git rebase main", true},
		{"git bisect start", true},
		{"git submodule status", true},
		{"git -c alias.x='!id' x", false},
		{"git -c core.fsmonitor=./x status", false},
		{"git --no-pager -c core.pager=id log", false},
		{"git -C a -c x=y log", false},
		{"git --config-env=x=y log", false},
		{"git --exec-path=. status", false},
		{"git fetch --upload-pack=./x origin", false},
		{"git fetch --upload-pack ./x origin", false},
		{"git fetch --upl=./x origin", false},
		{"git clone -u ./x y", false},
		{"git clone -c core.pager=x y", false},
		{"git clone --template=x y", false},
		{"git clone ext::sh y", false},
		{"git archive --remote=ext::sh HEAD", false},
		{"git archive --exec=./x --remote=. HEAD", false},
		{"git push --receive-pack=./x", false},
		{"git ls-remote --exec=./x .", false},
		{"git rebase -x id main", false},
		{"git rebase --exec id main", false},
		{"git grep -O x", false},
		{"git grep -nOid x", false},
		{"git grep --open-files-in-pager=id x", false},
		{"git diff --output=/etc/x", false},
		{"git log --output=../x", false},
		{"git bisect run ./x", false},
		{"git submodule foreach id", false},
		{"git submodule --quiet foreach id", false},
		{"git filter-branch --tree-filter id", false},
		{"git difftool -x id", false},
		{"git mergetool", false},
		{"git config alias.x '!id'", false},
		{"git config --global core.sshCommand id", false},
		{"git config set core.hooksPath x", false},
		{"git config alias.x get", false},
		{"git config -e", false},
		{"git config diff.x.textconv id", false},
		{"git config filter.x.clean id", false},

		{"tar xzf a.tgz", true},
		{"tar -czf out.tgz dir", true},
		{"tar --to-command=id -xf a.tar", false},
		{"tar -I ./x -xf a.tar", false},
		{"tar -xIf ./x a.tar", false},
		{"tar cIf ./x a.tar d", false},
		{"tar --use-compress-program=./x -xf a", false},
		{"tar --use=./x -xf a", false},
		{"tar cf a d --checkpoint=1 --checkpoint-action=exec=id", false},
		{"tar --info-script=x -xf a", false},
		{"tar -xf a --rsh-command=x", false},

		{"rg --pre ./x y", false},
		{"rg --pre=./x y", false},
		{"rg --pretty y", true},
		{"fd -x id", false},
		{"fd -tx", true},
		{"fd -e py -X id", false},
		{"split --filter=id f", false},
		{"split -l 10 f out", true},
		{"rsync -e ./x a b", false},
		{"rsync -ave ./x a b", false},
		{"rsync -av a b", true},
		{"zip -T -TT id x.zip f", false},
		{"pandoc --filter ./x a.md", false},
		{"pandoc -F ./x a.md", false},
		{"pandoc a.md -o out.html", true},
		{"pdflatex -shell-escape a.tex", false},
		{"pdflatex --shell-escape a.tex", false},
		{"go build ./...", true},
		{"go build -toolexec=./x ./...", false},
		{"go test -exec ./x ./...", false},
		{"npm run x --script-shell=./y", false},
		{"make --eval='$(shell id)'", false},
		{"make -j4 test", true},
		{"wget --use-askpass=./x y", false},
		{"man -P id ls", false},
		{"gcc -wrapper id a.c", false},
	} {
		program, _, _ := strings.Cut(c.command, " ")
		for _, rule := range []string{"Bash(" + program + ":*)", "Bash(" + program + " *)", "Bash(" + program[:1] + "*)"} {
			decideRows(t, []row{{rule, c.command, c.allow}})
		}
		decideRows(t, []row{{"Bash", c.command, true}})
	}
}

// Forms that a rule spells out are allowed. Forms that a wildcard admits after them are not.
func TestFormsThatTheRuleNames(t *testing.T) {
	decideRows(t, []row{
		{"Bash(find . -exec grep:*)", "find . -exec grep x {} +", true},
		{"Bash(find . -exec grep:*)", "find . -exec grep x {} ';' -exec id ';'", false},
		{"Bash(find . -exec:*)", "find . -exec id ';'", false},
		{"Bash(find . -delete:*)", "find . -delete", true},
		{"Bash(find . -delete)", "find . -delete", true},
		{"Bash(git -c color.ui=never log:*)", "git -c color.ui=never log -n 1", true},
		{"Bash(git -c:*)", "git -c core.pager=id log", false},
		{"Bash(git bisect run make:*)", "git bisect run make test", true},
		{"Bash(git bisect run:*)", "git bisect run ./x", false},
		{"Bash(git submodule foreach git:*)", "git submodule foreach git status", true},
		{"Bash(git mergetool:*)", "git mergetool", true},
		{"Bash(git difftool:*)", "git difftool -x id", false},
		{"Bash(git config alias.x:*)", "git config alias.x '!id'", true},
		{"Bash(sed -f {baseDir}/x.sed:*)", "sed -f /skills/demo/x.sed f", true},
		{"Bash(sed -f:*)", "sed -f x f", false},
		{"Bash(awk -f x.awk:*)", "awk -f x.awk f", true},
		{`Bash(awk 'BEGIN{system("date")}':*)`, `awk 'BEGIN{system("date")}' x`, true},
		{"Bash(sort --compress-program=gzip:*)", "sort --compress-program=gzip f", true},
		{"Bash(sort --compress-program=gzip:*)", "sort --compress-program=gzip --compress-program=./x f", false},
		{"Bash(sort --compress-program:*)", "sort --compress-program ./x f", false},
		{"Bash(/usr/bin/find:*)", "/usr/bin/find . -delete", false},
	})
}

func FuzzGuards(f *testing.F) {
	for _, seed := range []string{"s/a/b/w x", "/[/]/d", "y/a/b/;:a;ba", "a\\\nfoo", "BEGIN{system(1)}", "/[/\"]/{x}", "-c", "config"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sedScript(text)
		awkRuns(text)
		words := append([]string{"x"}, strings.Fields(text)...)
		for program := range guards {
			words[0] = program
			danger(words, len(words)/2)
		}
		for _, program := range []string{"git", "sed", "awk", "tar"} {
			words[0] = program
			danger(words, 1)
			danger(words, len(words))
		}
		for _, program := range runners {
			words[0] = program
			payload(words)
		}
	})
}
