set -eu
mkdir "$TMPDIR/repo" && cd "$TMPDIR/repo"
git init -q -b main
echo one >a.txt
git add a.txt
git commit -q -m 'the first'
git checkout -q -b side
echo two >>a.txt
git commit -q -am 'the second'
git checkout -q main
git merge -q --no-ff -m 'merged' side
git tag v1
[ "$(git log --oneline | wc -l)" = 3 ]
[ "$(git log -1 --format=%an)" = skill ]
git diff --stat HEAD~1 | grep -q a.txt
git clone -q . "$TMPDIR/clone"
[ "$(git -C "$TMPDIR/clone" rev-list --count HEAD)" = 3 ]
echo dirty >>a.txt
git stash -q && git stash pop -q
git status --short | grep -q a.txt
git gc -q
git fsck 2>/dev/null
git archive --format=tar v1 | tar t | grep -qx a.txt
git blame a.txt >/dev/null
git worktree add -q "$TMPDIR/tree" side
echo ok
