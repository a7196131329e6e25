# Runs a program of RunPython as python itself would. If an exception ends the program, it
# reports the exception to the daemon, see report.go. The arguments are those of python: -c
# and a text, or a script. The function leaves no name in __main__. It binds the functions
# that it needs before the program starts, so that the program cannot replace them.


def _run(scope, token, is_file):
    import io, linecache, os, sys

    del scope["_run"]
    write, fstat, hook = os.write, os.fstat, sys.__excepthook__
    pid, pipe, path = os.getpid(), os.dup(2), sys.path[1:]
    stderr = fstat(pipe)[:3]
    what, *rest = sys.argv[1:]
    inline = what == "-c"
    if inline:
        what, *rest = rest
    sys.orig_argv[1:] = ["-c", what, *rest] if inline and not is_file else [what, *rest]
    sys.argv[:] = ["-c" if inline and not is_file else what, *rest]
    try:
        if inline and not is_file:
            if what[:1].isspace():
                import textwrap

                what = textwrap.dedent(what)
            code = compile(what, "<string>", "exec", dont_inherit=True)
            linecache._register_code(code, what, "<string>")
        else:
            sys.path[0] = os.path.dirname(os.path.realpath(what))
            loader = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", what)
            scope.update(__file__=what, __cached__=None, __loader__=loader)
            with io.open_code(what) as file:
                code = compile(file.read(), what, "exec", dont_inherit=True)
        exec(code, scope)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__.tb_next  # without this function
        BaseException.with_traceback(error, trace)
        sys.last_exc = sys.last_value = error
        sys.last_type, sys.last_traceback = type(error), trace
        if sys.excepthook is not hook:
            try:
                sys.excepthook(type(error), error, trace)
            except BaseException:
                pass
        for stream in sys.stdout, sys.stderr, sys.__stderr__:
            try:
                stream.flush()
            except BaseException:
                pass
        # Print the traceback as the interpreter does: into a buffer instead of the
        # program's sys.stderr, and without a traceback.py from the program's folder.
        whole, shown, printed = sys.path, io.StringIO(), sys.stderr
        sys.path, sys.stderr = path, shown
        try:
            hook(type(error), error, trace)
        finally:
            sys.path, sys.stderr = whole, printed
        try:
            message = str(error.msg if isinstance(error, SyntaxError) else error)
        except BaseException:
            message = ""
        message = (message or type(error).__name__)[:65536]
        text = shown.getvalue().encode("utf-8", "backslashreplace")
        report = text
        if os.getpid() == pid:  # an exception in a forked child does not end the program
            said = message.encode("utf-8", "backslashreplace").hex()
            report += f"[{token} {len(text)} {said}]\n".encode()
        for fd in pipe, 2:  # the program may have closed or replaced either
            try:
                if fstat(fd)[:3] == stderr:
                    os.set_blocking(fd, True)
                    while report:
                        report = report[write(fd, report) :]
                    break
            except OSError:
                pass
        raise SystemExit(1) from None


