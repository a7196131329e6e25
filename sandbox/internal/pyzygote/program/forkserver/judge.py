"""The fork server's judgement: can this child become the command, or must it be executed?

These functions look at the files and settings of a request. The program has not started
yet, so no deadline of the program holds. Therefore the functions read a bounded number
of names, and never open a file that can make them wait. Any exception means that they
can't judge: become.py then executes the command.
"""

import os
import re
import site
import stat
import sys

MAX_LISTED = 1 << 16  # names of one directory that a child reads
MAX_WALKED = 4096  # names beneath the workspace that a child reads
MAX_DEPTH = 32  # depth of directories that a child enters
MAX_TEXT = 1 << 16  # of a script, searched for names of files
MAX_ZIP_END = 22 + 0xFFFF  # the last record of a zip file begins in its last so many bytes


# How the names of variables begin that modules of the zygote's list read at their import.
OF_PACKAGES = ("BLIS_", "GOTO_", "KMP_", "MKL_", "MPMATH_", "NETWORKX_", "NPY_", "NUMEXPR_", "NUMPY_", "OMP_", "OPENBLAS_")
OF_PACKAGES += ("OPENPYXL_", "OPENSSL_", "PANDAS_", "PILLOW_", "PYDANTIC_", "RL_", "SCIPY_", "SYMPY_", "VECLIB_")


def settings(env):
    """The variables of an environment that are read before the fork: by Python and the C
    library at their start, and by packages at their import."""
    read = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "XDG_CONFIG_HOME", "GCONV_PATH", "LOCPATH", "TZDIR")
    families = ("PYTHON", "GLIBC_", "LD_", "MALLOC_") + OF_PACKAGES
    return {k: v for k, v in env.items() if k in read or k.startswith(families) and k != "PYTHONUSERBASE"}


def names_a_file(zone):
    """Whether a value of TZ may name a file outside of the system's zone directory. The
    C library opens the file (tzset(3)), and a pipe would make it wait."""
    return zone.startswith((":", "/")) or ".." in zone


def names(directory):
    with os.scandir(directory or ".") as entries:
        for n, entry in enumerate(entries):
            if n >= MAX_LISTED:
                raise OverflowError("more names than a child looks at")
            yield entry.name


def hides(directory, preloaded):
    """Whether a module in directory comes before a preloaded one."""
    try:
        for name in names(directory):
            stem, dot, suffix = name.partition(".")
            if stem in preloaded and (not dot or suffix in ("py", "pyc") or suffix.endswith("so")):
                return True
    except FileNotFoundError:
        pass  # Python will find nothing there, either
    return False


# Where a virtual environment in the directory venv has its packages (PEP 405).
_SITE = re.compile(r"/venv/lib(64)?/python[\d.]+/site-packages")


def hides_beneath(top, preloaded):
    """Whether a directory beneath top has a module with the name of a preloaded one. Any of
    these directories may come first on sys.path. Also true if there are too many files, or if one
    is an archive of modules: a child opens none. Of the packages of the skill's virtual
    environment, which can be many, only the names count."""
    left, found = MAX_WALKED, [(top, 0)]
    while found:
        directory, depth = found.pop()
        if _SITE.fullmatch(directory[len(top):]):
            if hides(directory, preloaded):
                return True
            continue
        with os.scandir(directory) as entries:
            entries = [entry for entry, _ in zip(entries, range(left + 1))]
        left -= len(entries)
        if left < 0 or depth > MAX_DEPTH:
            return True
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                if is_module(entry.name, directory, preloaded) or entry.is_symlink() and hides_by_link(entry, top, preloaded):
                    return True
            else:
                found.append((entry.path, depth + 1))
    return False


# How the names of files end that Python can import modules from (zipimport).
_ARCHIVES = (".zip", ".whl", ".egg", ".pyz")


def is_module(name, directory, preloaded):
    """Whether a file may be, or have, a module with the name of a preloaded one."""
    if name.lower().endswith(_ARCHIVES):
        return True
    stem, _, suffix = name.partition(".")
    if suffix not in ("py", "pyc") and not suffix.endswith("so"):
        return False
    return stem in preloaded or stem == "__init__" and os.path.basename(directory) in preloaded


def hides_by_link(entry, top, preloaded):
    """Whether a link leads to a package that hides a preloaded module, to an archive, or to a
    directory outside of top."""
    if entry.is_file():
        return where_is(entry.path).lower().endswith(_ARCHIVES)
    return entry.is_dir() and (entry.name in preloaded or not (where_is(entry.path) + "/").startswith(top + "/"))


def where_is(path):
    """The real path of a file. The kernel finds it, because the kernel follows at most 40
    links (path_resolution(7)); os.path.realpath follows any number."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.readlink("/proc/self/fd/%d" % fd)
    finally:
        os.close(fd)


def first_on_path(argv):
    """The sys.path[0] that Python will compute. None if the script may be a zip file, or is
    no regular file."""
    if argv[1] == "-c":
        return ""
    mode = os.stat(argv[1]).st_mode
    if stat.S_ISDIR(mode):
        return argv[1]
    if not stat.S_ISREG(mode) or may_be_zip(argv[1]):
        return None
    return os.path.dirname(where_is(argv[1]))


def may_be_zip(path):
    """Whether a file ends like a zip file. Only the end is read, because the rest may be
    long. An executed Python reads it within the program's deadline."""
    with open(path, "rb", buffering=0) as f:
        f.seek(max(0, f.seek(0, os.SEEK_END) - MAX_ZIP_END))
        return b"PK\5\6" in f.read(MAX_ZIP_END)


def text_of(argv):
    """The beginning of the program's text. first_on_path has found that it can be read."""
    if argv[1] == "-c":
        return argv[2][:MAX_TEXT]
    if os.path.isdir(argv[1]):
        return ""
    with open(argv[1], "rb", buffering=0) as f:
        return f.read(MAX_TEXT).decode("latin-1")


_SUFFIX, _WORD = re.compile(r"\.py\b"), re.compile(r"\w*\Z")


def names_a_module(text, preloaded):
    """Whether a text has the file name of a preloaded module, such as json.py. The program may
    write that file, and then import it."""
    ends = (found.start() for found in _SUFFIX.finditer(text))
    return any(_WORD.search(text, max(0, end - 64), end)[0] in preloaded for end in ends)


_SETTING = re.compile(r"""(?<=["'])(?:{0})\w|\b(?:{0})\w+\s*=(?!=)""".format("|".join(OF_PACKAGES)))


def names_a_setting(text):
    """Whether a text has, in quotes or as a keyword, a variable that packages read at their
    import. The program may set it first, and then import the package."""
    return _SETTING.search(text) is not None


# These change existing loggers or the class of later ones. A preloaded package has its loggers already.
_LOGGERS = "dictConfig|fileConfig|setLoggerClass"
# These replace functions of modules such as ssl. A package that is preloaded, such as urllib3, keeps the old ones.
_PATCHES = "gevent|eventlet"
_IN_ORDER = re.compile(r"\b(?:{0}|{1})\b".format(_LOGGERS, _PATCHES))


def depends_on_order(text):
    """Whether a text has a name whose use has another result after certain imports."""
    return _IN_ORDER.search(text) is not None


def find_user_site():
    """The directory of the user's packages. None if Python would not add one."""
    site.USER_BASE = site.USER_SITE = None
    if not site.ENABLE_USER_SITE:
        return None
    path = site.getusersitepackages()
    return path if os.path.isdir(path) and path not in sys.path else None


def find_venv_site(prefix):
    """The directory of a virtual environment's packages. None if there is none."""
    path = os.path.join(prefix, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    return path if os.path.isdir(path) else None


def runs_code(path):
    """Whether adding a directory of packages may run code from it (.pth files)."""
    return any(name.endswith(".pth") for name in names(path))


def may_fork(zygote, command):
    """Whether this child can become the command, judged by files and settings."""
    argv, env, preloaded = command["argv"], command["env"], zygote.preloaded
    if len(argv) < 2 or (command.get("base") or argv[0]) != zygote.name:
        return False
    if argv[1] == "-c" and len(argv) < 3 or argv[1] != "-c" and argv[1][:1] in ("-", ""):
        return False
    if settings(env) != zygote.settings or names_a_file(env.get("TZ", "")):
        return False
    first = first_on_path(argv)
    if first is None or hides(first, preloaded):
        return False
    text = text_of(argv)
    if names_a_module(text, preloaded) or names_a_setting(text) or depends_on_order(text):
        return False
    return not (command.get("elsewhere") and hides_beneath("/workspace", preloaded))
