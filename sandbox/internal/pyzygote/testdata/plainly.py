# Tests insert this text before the last lines of sitecustomize.py. A command with "exec" is
# then executed, so that a test can compare a forked Python with a started one.


def _execute_what_asks_for_it():
    judge = zygote.judge
    may_fork = judge.may_fork
    judge.may_fork = lambda server, command: not command.get("exec") and may_fork(server, command)


_execute_what_asks_for_it()
